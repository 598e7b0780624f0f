package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/cached"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

const (
	// provisionedBy is written by provisioners: Kubernetes' volume controller leaves the deletion of volumes with it to
	// them.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// placeholder is the path of a volume that no kubelet mounts, as Liqo's (ProvisionRemotePVC).
	placeholder = "/tmp/liqo-placeholder"
	// classRecheck is how often a claim is tried whose class does not exist.
	classRecheck = time.Minute
)

// Config is everything that a Controller needs.
type Config struct {
	Log    logr.Logger
	Client client.Client
	Events record.EventRecorder
	// NodeName is the name of the broker's Node.
	NodeName string
}

// Controller makes and deletes the PersistentVolumes of the broker's Node.
type Controller struct{ Config }

// New returns a Controller, which does nothing before SetUp.
func New(cfg Config) *Controller { return &Controller{cfg} }

// SetUp registers the controller with the manager; it runs on the leader.
func (c *Controller) SetUp(mgr manager.Manager) error {
	options := func() controller.Options {
		return controller.Options{RateLimiter: requeue.Failures(), SkipNameValidation: ptr.To(true)}
	}
	claims := ctrl.NewControllerManagedBy(mgr).Named("claim").For(&corev1.PersistentVolumeClaim{}).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(claimOf)).
		WithOptions(options()).Complete(reconcile.Func(c.ReconcileClaim))
	volumes := ctrl.NewControllerManagedBy(mgr).Named("volume").For(&corev1.PersistentVolume{}).
		WithOptions(options()).Complete(reconcile.Func(c.ReconcileVolume))
	if err := errors.Join(claims, volumes); err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	return nil
}

// claimOf returns a request for the claim of a volume.
func claimOf(_ context.Context, o client.Object) []reconcile.Request {
	volume, ok := o.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{
		Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name,
	}}}
}

// ReconcileClaim makes the volume of a claim that was given to the Node, and completes the expansion of its claims.
func (c *Controller) ReconcileClaim(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := c.Client.Get(ctx, r.NamespacedName, &claim); err != nil || claim.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Spec.VolumeName != "" {
		return ctrl.Result{}, c.expand(ctx, &claim)
	}
	if claim.Annotations[cached.SelectedNodeAnnotation] != c.NodeName {
		return ctrl.Result{}, nil
	}
	class, err := c.classOf(ctx, &claim)
	switch {
	case kerrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: classRecheck}, nil
	case err != nil:
		return ctrl.Result{}, err
	case !provisions(class):
		return ctrl.Result{}, nil // Another provisioner's.
	}
	if why := unsupported(&claim); why != "" {
		c.Events.Event(&claim, corev1.EventTypeWarning, "ProvisioningFailed", why)
		return ctrl.Result{}, nil // The spec of a claim does not change.
	}
	err = c.Client.Create(ctx, c.volumeOf(&claim, class))
	if err == nil {
		c.Events.Event(&claim, corev1.EventTypeNormal, "Provisioning", "The volume is made at the provider of the first pod that uses it")
	}
	return ctrl.Result{}, client.IgnoreAlreadyExists(err)
}

// classOf returns the storage class of a claim.
func (c *Controller) classOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	var class storagev1.StorageClass
	return &class, c.Client.Get(ctx, client.ObjectKey{Name: placement.StorageClassOf(claim)}, &class)
}

// provisions reports whether volumes of a class are made at providers: it is one of Liqo's, whose volumes are made
// where the first pod runs.
func provisions(class *storagev1.StorageClass) bool {
	return class.Provisioner == consts.StorageProvisionerName &&
		ptr.Deref(class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}

// unsupported returns why no provider can make the volume of a claim, "" if one can. Liqo does not forward these fields.
func unsupported(claim *corev1.PersistentVolumeClaim) string {
	switch spec := &claim.Spec; {
	case spec.DataSource != nil || spec.DataSourceRef != nil:
		return "a volume at a provider cannot be made from another one or a snapshot (spec.dataSource, spec.dataSourceRef)"
	case spec.VolumeAttributesClassName != nil:
		return "a volume at a provider has no attributes of this cluster (spec.volumeAttributesClassName)"
	case spec.Selector != nil:
		return "a volume at a provider cannot be selected by labels (spec.selector)"
	}
	return ""
}

// volumeOf returns the volume of a claim, which is at no provider yet. It has the name that provisioners use, which is
// of the claim's UID.
func (c *Controller) volumeOf(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	policy := ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Labels:      map[string]string{v1alpha1.VolumeLabel: "true"},
			Annotations: map[string]string{provisionedBy: class.Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class.Name, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeReclaimPolicy: policy,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: placeholder}},
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{c.NodeName},
				}},
			}}}},
		},
	}
}

// expand shows on a claim that its volume was expanded: the virtual kubelet of the provider has set the capacity of the
// PersistentVolume.
func (c *Controller) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	var volume corev1.PersistentVolume
	if err := c.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume); err != nil {
		return client.IgnoreNotFound(err)
	}
	has, shown := volume.Spec.Capacity[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if volume.Labels[v1alpha1.VolumeLabel] == "" || claim.Status.Phase != corev1.ClaimBound || has.Cmp(shown) <= 0 {
		return nil
	}
	before := claim.DeepCopy()
	if claim.Status.Capacity == nil {
		claim.Status.Capacity = corev1.ResourceList{}
	}
	claim.Status.Capacity[corev1.ResourceStorage] = has
	return client.IgnoreNotFound(c.Client.Status().Patch(ctx, claim, client.MergeFrom(before)))
}

// ReconcileVolume deletes a volume whose claim is gone, if its policy says so. The virtual kubelet of the provider then
// deletes the claim there. Liqo's controller may do the same.
func (c *Controller) ReconcileVolume(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var volume corev1.PersistentVolume
	if err := c.Client.Get(ctx, r.NamespacedName, &volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Kubernetes' volume controller marks a volume as Released once its claim, of the same UID, is gone.
	if volume.Labels[v1alpha1.VolumeLabel] == "" || volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || volume.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	c.Log.Info("Deleting the volume of a claim that is gone", "volume", volume.Name, "provider", volume.Labels[v1alpha1.ProviderLabel])
	err := c.Client.Delete(ctx, &volume, client.Preconditions{UID: &volume.UID, ResourceVersion: &volume.ResourceVersion})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
