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
	class := cmp.Or(claim.Annotations[consts.RemotePVCStorageClassAnnotKey], ptr.Deref(claim.Spec.StorageClassName, ""))
	if class == virtualStorageClass {
		return ""
	}
	return class
}

// Volume returns the PersistentVolume of a claim, which stands for a volume at a provider. The error is an ErrVolume if
// the claim has none, or one of this cluster, which no provider has.
func Volume(ctx context.Context, reader client.Reader, key client.ObjectKey) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	var claim corev1.PersistentVolumeClaim
	switch err := reader.Get(ctx, key, &claim); {
	case kerrors.IsNotFound(err):
		return nil, nil, volumeError("there is no PersistentVolumeClaim " + key.Name)
	case err != nil:
		return nil, nil, err
	case claim.Spec.VolumeName == "":
		return nil, nil, volumeError("PersistentVolumeClaim " + key.Name + " is not bound")
	}
	var volume corev1.PersistentVolume
	err := reader.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	}
	ref := volume.Spec.ClaimRef
	if err != nil || volume.Labels[v1alpha1.VolumeLabel] == "" || ref == nil || ref.UID != claim.UID {
		return nil, nil, volumeError(fmt.Sprintf("PersistentVolumeClaim %s is bound to a volume of this cluster, which no provider has: "+
			"use a storage class of the provisioner %s", key.Name, consts.StorageProvisionerName))
	}
	return &claim, &volume, nil
}

// volumesOf returns the volumes of a pod; nil if it has none. The error may be an ErrVolume.
func (p *Policies) volumesOf(ctx context.Context, pod *corev1.Pod, policy *v1alpha1.PlacementPolicy) (*scheduler.Volumes, error) {
	names := ClaimsOf(pod)
	if len(names) == 0 {
		return nil, nil
	}
	of := &scheduler.Volumes{Recreate: policy != nil && policy.Spec.Volumes == v1alpha1.VolumesRecreate}
	for _, name := range names {
		claim, volume, err := Volume(ctx, p.Client, client.ObjectKey{Namespace: pod.Namespace, Name: name})
		if err != nil {
			return nil, err
		}
		class, provider := RemoteStorageClass(claim), volume.Labels[v1alpha1.ProviderLabel]
		switch {
		case provider == "":
			of.Classes = append(of.Classes, class)
			continue
		case of.Provider == "":
			of.Provider, of.Claim = provider, name
		case of.Provider != provider:
			return nil, volumeError(fmt.Sprintf("PersistentVolumeClaims %s and %s are at different providers, %s and %s",
				of.Claim, name, of.Provider, provider))
		}
		of.Placed = append(of.Placed, class)
	}
	return of, nil
}
