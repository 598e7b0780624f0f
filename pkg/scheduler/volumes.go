package scheduler

import (
	"fmt"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Volumes are the volumes of a pod's claims, as a decision reads them.
type Volumes struct {
	// Provider is the id of the provider where volumes of the pod are, "" if they are nowhere yet. Claim is the name of
	// one of their claims.
	Provider, Claim string
	// Classes has the storage classes of the claims whose volumes are nowhere yet, Placed the classes of the other claims;
	// "" is the provider's default.
	Classes, Placed []string
	// Recreate means that new, empty volumes may be made at another provider if the present one is lost. Split means that
	// such volumes are at several providers: a recreation was interrupted.
	Recreate, Split bool
}

// Recreated returns the volumes as a decision reads them that may recreate all of them; nil if it may not, or there are
// none.
func (v *Volumes) Recreated() *Volumes {
	if v == nil || !v.Recreate || v.Provider == "" {
		return nil
	}
	return &Volumes{Classes: slices.Concat(v.Classes, v.Placed), Recreate: true}
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
