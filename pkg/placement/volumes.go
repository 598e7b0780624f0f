package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// ErrVolume means that a claim of a pod has no volume that a provider could have. Such an error is an ErrInvalid, too.
var ErrVolume = errors.New("volume not available")

type volumeError string

func (e volumeError) Error() string { return string(e) }

// Is implements the interface of errors.Is.
func (e volumeError) Is(target error) bool { return target == ErrVolume || target == ErrInvalid }

// ClaimsOf returns the names of a pod's PersistentVolumeClaims, each once, sorted: those it names, and those that
// Kubernetes makes for its ephemeral volumes.
func ClaimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, ephemeral.VolumeClaimName(pod, v))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// virtualStorageClass is the name of the class in Liqo's chart whose volumes a provider makes with its default class.
const virtualStorageClass = "liqo"

// RemoteStorageClass returns the storage class that a claim asks for at a provider, "" for the provider's default one:
// Liqo's annotation, else the name of its class here. The annotation names the class here, too, if the claim came from a
// consumer: Liqo's virtual kubelet there has made the claim of the class that it names, and sent it (ProvisionRemotePVC).
func RemoteStorageClass(claim *corev1.PersistentVolumeClaim) string {
	class := cmp.Or(claim.Annotations[consts.RemotePVCStorageClassAnnotKey], StorageClassOf(claim))
	if class == virtualStorageClass {
		return ""
	}
	return class
}

// StorageClassOf returns the name of the storage class of a claim; the annotation has precedence
// (GetPersistentVolumeClaimClass in k8s.io/component-helpers).
func StorageClassOf(claim *corev1.PersistentVolumeClaim) string {
	return cmp.Or(claim.Annotations[corev1.BetaStorageClassAnnotation], ptr.Deref(claim.Spec.StorageClassName, ""))
}

// Claim is a claim of a pod with its PersistentVolume, which stands for a volume at a provider.
type Claim struct {
	*corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	// Nowhere means that the volume may be made at another provider than that in its label.
	Nowhere bool
}

// Provider returns the id of the provider where the volume is; "" if it is nowhere yet.
func (c *Claim) Provider() string { return c.Volume.Labels[v1alpha1.ProviderLabel] }

// IsMade reports whether the claim was made at the provider, or is being made, so that it may have data there.
func (c *Claim) IsMade() bool {
	at := c.Provider()
	return at != "" && (c.Volume.Annotations[v1alpha1.MadeAtAnnotation] == at || c.Volume.Annotations[v1alpha1.MakingAtAnnotation] == at)
}

// claimOf returns a claim with its PersistentVolume. The error is an ErrVolume if the claim has none, or one of this
// cluster, which no provider has.
func claimOf(ctx context.Context, reader client.Reader, key client.ObjectKey) (Claim, error) {
	var claim corev1.PersistentVolumeClaim
	switch err := reader.Get(ctx, key, &claim); {
	case kerrors.IsNotFound(err):
		return Claim{}, volumeError("there is no PersistentVolumeClaim " + key.Name)
	case err != nil:
		return Claim{}, err
	case claim.Spec.VolumeName == "":
		return Claim{}, volumeError("PersistentVolumeClaim " + key.Name + " is not bound")
	}
	var volume corev1.PersistentVolume
	err := reader.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume)
	if client.IgnoreNotFound(err) != nil {
		return Claim{}, err
	}
	ref := volume.Spec.ClaimRef
	if err != nil || volume.Labels[v1alpha1.VolumeLabel] == "" || ref == nil || ref.UID != claim.UID {
		return Claim{}, volumeError(fmt.Sprintf("PersistentVolumeClaim %s is bound to a volume of this cluster, which no provider has: "+
			"use a storage class of the provisioner %s", key.Name, consts.StorageProvisionerName))
	}
	return Claim{PersistentVolumeClaim: &claim, Volume: &volume}, nil
}

func claimsOf(ctx context.Context, reader client.Reader, namespace string, names []string) (claims []Claim, err error) {
	claims = make([]Claim, len(names))
	for i, name := range names {
		if claims[i], err = claimOf(ctx, reader, client.ObjectKey{Namespace: namespace, Name: name}); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// readClaims reads the volumes of a pod into its criteria. The error is an ErrVolume or an error of the API.
func (p *Policies) readClaims(ctx context.Context, c *Criteria, pod *corev1.Pod, policy *v1alpha1.PlacementPolicy) error {
	names := ClaimsOf(pod)
	if len(names) == 0 {
		return nil
	}
	claims, err := claimsOf(ctx, p.Client, pod.Namespace, names)
	if errors.Is(err, ErrVolume) && p.Live != nil {
		claims, err = claimsOf(ctx, p.Live, pod.Namespace, names)
	}
	if err != nil {
		return err
	}
	recreate := policy != nil && policy.Spec.Volumes == v1alpha1.VolumesRecreate
	for i := range claims {
		if claims[i].Provider() != "" && p.Nowhere != nil && (recreate || !claims[i].IsMade()) {
			if claims[i].Nowhere, err = p.Nowhere(ctx, pod, &claims[i], &c.Rules); err != nil {
				return err
			}
		}
	}
	c.Claims = claims
	c.Volumes, err = volumesOf(claims)
	return err
}

// volumesOf returns the volumes of claims. The error is an ErrVolume if they are at different providers.
func volumesOf(claims []Claim) (*scheduler.Volumes, error) {
	of := &scheduler.Volumes{}
	for i := range claims {
		c := &claims[i]
		switch provider := c.Provider(); {
		case provider == "", c.Nowhere:
			of.Classes = append(of.Classes, RemoteStorageClass(c.PersistentVolumeClaim))
		case of.Provider == "":
			of.Provider, of.Claim = provider, c.Name
		case of.Provider != provider:
			return nil, volumeError(fmt.Sprintf("PersistentVolumeClaims %s and %s are at different providers, %s and %s",
				of.Claim, c.Name, of.Provider, provider))
		}
	}
	return of, nil
}
