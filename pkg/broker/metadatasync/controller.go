// Package metadatasync removes from the pods of consumers the labels and annotations that their owners removed.
//
// A virtual kubelet removes them from the ShadowPod. Liqo's ShadowPod controller leaves them on the pod: it creates the
// pod by an ordinary request, and updates it by server-side apply
// (pkg/liqo-controller-manager/offloading/shadowpod-controller in v1.2.0). Both use the same field manager name, but
// for the API server these are two managers: a field that is no longer applied is still owned by the one that created
// the pod. So a pod would keep a filter that no provider passes, after its owner has removed it.
package metadatasync

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// manager of the fields that Liqo's ShadowPod controller writes.
const shadowPodManager = "shadow-pod"

// Config is everything that a Controller needs.
type Config struct {
	// Client reads from the cache, which holds the pods of the broker's node only. Live reads from the API server.
	Client client.Client
	Live   client.Reader
	Writer *podpatch.Writer
}

// Controller compares pods with their ShadowPods.
type Controller struct {
	Config
	conflicts workqueue.TypedRateLimiter[types.NamespacedName]
}

// New returns a Controller, which does nothing before SetUp.
func New(cfg Config) *Controller { return &Controller{Config: cfg, conflicts: requeue.Conflicts()} }

// SetUp registers the controller with the manager; it runs on the leader.
func (c *Controller) SetUp(mgr manager.Manager) error {
	changed := builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	err := ctrl.NewControllerManagedBy(mgr).Named("withdrawn").
		For(&offloadingv1beta1.ShadowPod{}, builder.OnlyMetadata, changed).
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, changed). // It has the name of its ShadowPod.
		WithOptions(controller.Options{RateLimiter: requeue.Failures(), SkipNameValidation: ptr.To(true)}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("labels and annotations of consumers: %w", err)
	}
	return nil
}

// Reconcile removes from a pod the keys that its ShadowPod no longer has. The caches may lag: if a key has come back in
// the meantime, Liqo's controller writes it again after the pod has changed.
func (c *Controller) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	err := c.remove(ctx, r.NamespacedName)
	if kerrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: c.conflicts.When(r.NamespacedName)}, nil
	}
	c.conflicts.Forget(r.NamespacedName)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func (c *Controller) remove(ctx context.Context, name types.NamespacedName) error {
	var pod corev1.Pod
	if err := c.Client.Get(ctx, name, &pod); err != nil {
		return err
	}
	shadow := placement.ShadowPodMetadata()
	if err := c.Client.Get(ctx, name, shadow); err != nil {
		return err
	}
	if !metav1.IsControlledBy(&pod, shadow) || pod.DeletionTimestamp != nil {
		return nil
	}
	labels, annotations := missing(pod.Labels, shadow.Labels), missing(pod.Annotations, shadow.Annotations)
	if len(labels)+len(annotations) == 0 {
		return nil
	}
	// The cache has no managed fields.
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := c.Live.Get(ctx, name, live); err != nil || live.UID != pod.UID {
		return err
	}
	change, err := removal(live.ManagedFields, labels, annotations)
	if err != nil || len(change) == 0 {
		return err
	}
	pod.ResourceVersion = live.ResourceVersion
	return c.Writer.Patch(ctx, &pod, change)
}

// missing returns the keys of a pod that its ShadowPod does not have, sorted, without those that Liqo and the broker
// write on pods: Liqo's controller writes its own again each time.
func missing(pod, shadow map[string]string) []string {
	var keys []string
	for key := range pod {
		if _, has := shadow[key]; !has && !reserved(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func reserved(key string) bool {
	switch key {
	case v1alpha1.FilterAnnotation, v1alpha1.PolicyAnnotation, v1alpha1.FailoverAnnotation:
		return false
	}
	domain, _, _ := strings.Cut(key, "/")
	return domain == "liqo.io" || strings.HasSuffix(domain, ".liqo.io")
}

// removal returns the patch of a pod's metadata that removes those labels and annotations that only Liqo's ShadowPod
// controller has written.
func removal(managed []metav1.ManagedFieldsEntry, labels, annotations []string) (map[string]any, error) {
	owners := map[string]bool{} // By field; true if the controller is the only one.
	for _, entry := range managed {
		if entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels      map[string]any `json:"f:labels"`
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(entry.FieldsV1.Raw, &fields); err != nil {
			return nil, fmt.Errorf("managed fields of %s: %w", entry.Manager, err)
		}
		for kind, of := range map[string]map[string]any{"labels": fields.Metadata.Labels, "annotations": fields.Metadata.Annotations} {
			for field := range of {
				field = kind + "/" + strings.TrimPrefix(field, "f:")
				only, seen := owners[field]
				owners[field] = entry.Manager == shadowPodManager && (only || !seen)
			}
		}
	}
	change := map[string]any{}
	for kind, keys := range map[string][]string{"labels": labels, "annotations": annotations} {
		removed := map[string]any{}
		for _, key := range keys {
			if owners[kind+"/"+key] {
				removed[key] = nil
			}
		}
		if len(removed) > 0 {
			change[kind] = removed
		}
	}
	return change, nil
}
