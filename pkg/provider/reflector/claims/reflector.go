// Package claims reflects the PersistentVolumeClaims of the broker's Node to the provider where their volumes are: the
// broker has written on the PersistentVolume of a claim at which provider. The claim at the provider exists as long as
// that PersistentVolume.
package claims

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1clients "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v7/controller"

	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/offloading/storageprovisioner"
	"github.com/liqotech/liqo/pkg/utils/virtualkubelet"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/storage"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Namespaced returns the reflector of a namespace for the claims whose volumes are at a provider. class is the storage
// class there of claims that name none; "" is the default one of its cluster.
func Namespaced(provider, class string) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		local, remote := opts.LocalFactory.Core().V1().PersistentVolumeClaims(), opts.RemoteFactory.Core().V1().PersistentVolumeClaims()
		volumes := opts.LocalFactory.Core().V1().PersistentVolumes()
		own := opts.HandlerFactory(generic.NamespacedKeyer(opts.LocalNamespace))
		// An informer that has not been started takes every handler.
		_, _ = local.Informer().AddEventHandler(own)
		_, _ = remote.Informer().AddEventHandler(own)
		_, _ = volumes.Informer().AddEventHandler(opts.HandlerFactory(claimOf(opts.LocalNamespace)))
		r := &reflector{
			NamespacedReflector: generic.NewNamespacedReflector(opts, storage.PersistentVolumeClaimReflectorName),
			provider:            provider, class: class,
			local:        local.Lister().PersistentVolumeClaims(opts.LocalNamespace),
			remote:       remote.Lister().PersistentVolumeClaims(opts.RemoteNamespace),
			volumes:      volumes.Lister(),
			localVolumes: opts.LocalClient.CoreV1().PersistentVolumes(),
		}
		r.remoteClaims = successiveOf(opts, r.origin).CoreV1().PersistentVolumeClaims(opts.RemoteNamespace)
		return r
	}
}

// claimOf returns the key of a volume's claim, if it is in the namespace.
func claimOf(namespace string) options.Keyer {
	return func(o metav1.Object) []types.NamespacedName {
		volume, ok := o.(*corev1.PersistentVolume)
		if !ok || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.Namespace != namespace {
			return nil
		}
		return []types.NamespacedName{{Namespace: namespace, Name: volume.Spec.ClaimRef.Name}}
	}
}

type reflector struct {
	generic.NamespacedReflector
	provider, class string

	local, remote corev1listers.PersistentVolumeClaimNamespaceLister
	volumes       corev1listers.PersistentVolumeLister
	localVolumes  corev1clients.PersistentVolumeInterface
	remoteClaims  corev1clients.PersistentVolumeClaimInterface
}

// List implements manager.NamespacedReflector: claims here and there.
func (r *reflector) List() ([]any, error) {
	return virtualkubelet.List[virtualkubelet.Lister[*corev1.PersistentVolumeClaim], *corev1.PersistentVolumeClaim](r.local, r.remote)
}

// Handle makes the claim at the provider as it should be.
func (r *reflector) Handle(ctx context.Context, name string) error {
	local, err := r.local.Get(name)
	if err != nil && !kerrors.IsNotFound(err) {
		return err
	}
	remote, err := r.remote.Get(name)
	if err != nil && !kerrors.IsNotFound(err) {
		return err
	}
	volume, err := r.volumeHere(local)
	switch {
	case err != nil:
		return err
	case remote == nil && volume == nil:
		return nil
	case remote == nil:
		return r.create(ctx, local, volume)
	case !forge.IsReflected(remote) || !isOfVolume(remote):
		if volume != nil {
			r.Event(local, corev1.EventTypeWarning, forge.EventFailedReflection, forge.EventFailedReflectionAlreadyExistsMsg())
		}
		return nil // It is not ours.
	case volume == nil || isOfAnother(remote, originOf(volume)):
		return r.clean(ctx, local, remote, volume != nil)
	}
	return r.update(ctx, local, remote, volume)
}

// volumeHere returns the volume of a claim, if it is at the provider; nil if it is not.
func (r *reflector) volumeHere(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if claim == nil || claim.Spec.VolumeName == "" {
		return nil, nil
	}
	volume, err := r.volumes.Get(claim.Spec.VolumeName)
	if kerrors.IsNotFound(err) {
		return nil, nil // Its appearance is an event.
	}
	if err != nil || !r.isHere(volume) || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil, err
	}
	return volume, nil
}

// origin returns the value of v1alpha1.ClaimOriginAnnotation for a claim here.
func (r *reflector) origin(claim *corev1.PersistentVolumeClaim) (string, error) {
	volume, err := r.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	return originOf(volume), nil
}

// originOf returns the name of a volume, and when it was assigned to its provider: it may come back to one that still has
// a claim of it.
func originOf(volume *corev1.PersistentVolume) string {
	return volume.Name + "/" + volume.Annotations[v1alpha1.AssignedAtAnnotation]
}

func (r *reflector) isHere(volume *corev1.PersistentVolume) bool {
	return volume.Labels[v1alpha1.VolumeLabel] != "" && volume.Labels[v1alpha1.ProviderLabel] == r.provider
}

// create makes the claim at the provider, unless it was there before: it was deleted there, with its data, and an empty
// volume must not take its place unseen.
func (r *reflector) create(ctx context.Context, local *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	if local.DeletionTimestamp != nil {
		return nil
	}
	// The cache may lag behind a broker that recreates the volume elsewhere.
	live, err := r.localVolumes.Get(ctx, volume.Name, metav1.GetOptions{})
	if err != nil || !r.isHere(live) || live.UID != volume.UID || originOf(live) != originOf(volume) {
		return ignoreNotFound(err)
	}
	switch there, err := r.remoteClaims.Get(ctx, local.Name, metav1.GetOptions{}); {
	case err == nil && forge.IsReflected(there) && isOfVolume(there) && isOfAnother(there, originOf(live)):
		return r.clean(ctx, local, there, true)
	case !kerrors.IsNotFound(err):
		return err // Of a claim that is there the cache will know.
	}
	if live.Annotations[v1alpha1.MadeAtAnnotation] == r.provider {
		r.Event(local, corev1.EventTypeWarning, "VolumeLost", fmt.Sprintf("The claim was deleted at provider %s, with its volume. "+
			"Delete this one too, or remove the annotation %s of PersistentVolume %s to have a new, empty volume made",
			r.provider, v1alpha1.MadeAtAnnotation, live.Name))
		return nil
	}
	// Before the claim may have data: the broker assigns the volume to no other provider from then on.
	if live, err = r.mark(ctx, live, v1alpha1.MakingAtAnnotation); err != nil {
		return err
	}
	if err := r.apply(ctx, local, nil); err != nil {
		return err
	}
	r.Event(local, corev1.EventTypeNormal, forge.EventSuccessfulReflection, forge.EventSuccessfulReflectionMsg())
	_, err = r.mark(ctx, live, v1alpha1.MadeAtAnnotation)
	return err
}

// update sends changes of the claim, such as a larger request, and shows its capacity here.
func (r *reflector) update(ctx context.Context, local, remote *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	if remote.DeletionTimestamp != nil {
		r.Event(local, corev1.EventTypeWarning, "VolumeLost", "The claim is being deleted at provider "+r.provider)
		return nil
	}
	if err := r.apply(ctx, local, remote); err != nil {
		return err
	}
	if _, err := r.mark(ctx, volume, v1alpha1.MadeAtAnnotation); err != nil {
		return err
	}
	has, shown := remote.Status.Capacity[corev1.ResourceStorage], volume.Spec.Capacity[corev1.ResourceStorage]
	if remote.Status.Phase != corev1.ClaimBound || has.Cmp(shown) <= 0 {
		return nil
	}
	_, err := r.patch(ctx, volume, fmt.Sprintf(`{"spec":{"capacity":{"storage":%q}}}`, has.String()))
	return ignoreNotFound(err)
}

// mark notes the provider on the volume. The API server answers Conflict if the volume was assigned again meanwhile.
func (r *reflector) mark(ctx context.Context, volume *corev1.PersistentVolume, annotation string) (*corev1.PersistentVolume, error) {
	if volume.Annotations[annotation] == r.provider {
		return volume, nil
	}
	return r.patch(ctx, volume, fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`,
		volume.ResourceVersion, annotation, r.provider))
}

func (r *reflector) patch(ctx context.Context, volume *corev1.PersistentVolume, change string) (*corev1.PersistentVolume, error) {
	return r.localVolumes.Patch(ctx, volume.Name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
}

// clean deletes a claim at the provider whose PersistentVolume is gone, or was assigned to another provider, or again. Only
// the API server is certain: a cache may lag. wanted means that a later claim of the name waits for it.
func (r *reflector) clean(ctx context.Context, local, remote *corev1.PersistentVolumeClaim, wanted bool) error {
	origin := remote.Annotations[v1alpha1.ClaimOriginAnnotation]
	name, _, _ := strings.Cut(origin, "/")
	volume, err := r.localVolumes.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !kerrors.IsNotFound(err) {
		return err
	}
	if err == nil && (volume.Labels[v1alpha1.ProviderLabel] == "" || r.isHere(volume) && originOf(volume) == origin) {
		if wanted {
			r.Event(local, corev1.EventTypeWarning, forge.EventFailedReflection, fmt.Sprintf("An earlier claim of this name is kept at "+
				"provider %s by PersistentVolume %s: use another name, or delete that one if its data are not needed", r.provider,
				volume.Name))
		}
		return nil
	}
	if remote.DeletionTimestamp != nil {
		return nil // The end of the deletion is an event.
	}
	return r.DeleteRemote(ctx, r.remoteClaims, storage.PersistentVolumeClaimReflectorName, remote.Name, remote.UID)
}

// apply sends the claim as Liqo does. ProvisionRemotePVC chooses the class and the access modes; the PersistentVolume
// that it returns is not needed. Both are immutable: a claim that is there, remote, keeps them.
func (r *reflector) apply(ctx context.Context, local, remote *corev1.PersistentVolumeClaim) error {
	sent := local.DeepCopy()
	class := placement.RemoteStorageClass(local) // "" is none.
	if remote != nil {
		class = ptr.Deref(remote.Spec.StorageClassName, "")
		modes := make([]string, len(remote.Spec.AccessModes))
		for i, mode := range remote.Spec.AccessModes {
			modes[i] = string(mode)
		}
		metav1.SetMetaDataAnnotation(&sent.ObjectMeta, consts.RemotePVCAccessModeAnnotKey, strings.Join(modes, ","))
	}
	metav1.SetMetaDataAnnotation(&sent.ObjectMeta, consts.RemotePVCStorageClassAnnotKey, class)
	_, _, err := storageprovisioner.ProvisionRemotePVC(ctx, controller.ProvisionOptions{
		PVC: sent, StorageClass: &storagev1.StorageClass{},
		SelectedNode: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{consts.RemoteClusterID: r.provider}}},
	}, r.RemoteNamespace(), r.class, r.remote, r.remoteClaims, r.ForgingOpts)
	if err != nil {
		r.Event(local, corev1.EventTypeWarning, forge.EventFailedReflection, untrusted.Text(forge.EventFailedReflectionMsg(err)))
		return fmt.Errorf("PersistentVolumeClaim %s at provider %s: %w", local.Name, r.provider, err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}
