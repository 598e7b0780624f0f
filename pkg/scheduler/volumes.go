package scheduler

import (
	"fmt"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Volumes are the volumes of a pod's claims, as a decision reads them.
type Volumes struct {
	// Provider is the id of the provider where volumes of the pod are, "" if they are nowhere yet. Claim is the name of
	// one of their claims.
	Provider, Claim string
	// Classes has the storage classes of the claims whose volumes are nowhere yet; "" is the provider's default.
	Classes []string
}

// filterVolumes reports whether the pod's volumes are at the provider, or can be made there.
func (c *cycle) filterVolumes(p *provider, v *verdict.Verdict) bool {
	volumes := c.pod.Volumes
	if volumes == nil {
		return true
	}
	if volumes.Provider != "" && volumes.Provider != p.ID {
		v.Filter, v.Detail = verdict.VolumeElsewhere, fmt.Sprintf("volume %s is at provider %s", volumes.Claim, volumes.Provider)
		return false
	}
	for _, class := range volumes.Classes {
		switch {
		case class == "" && len(p.StorageClasses) == 0:
			v.Filter, v.Detail = verdict.NoStorageClass, "offers no storage class"
			return false
		case class != "" && !p.StorageClasses.Has(class):
			v.Filter, v.Detail = verdict.NoStorageClass, "offers no storage class "+class
			return false
		}
	}
	return true
}
