package brokernode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// releases tells the broker that a pod which was moved away is released, and remembers the ShadowPods that were deleted
// for it. Until a pod is released, its ShadowPod may still appear at the provider after the broker has seen none there,
// because its creation was in flight.
//
// Liqo handles one pod in one worker at a time, so no creation is in flight when a pod that was moved away is handled.
// Only a creation with an unknown result may still take effect. In that case no release is written, and the broker
// waits for a deadline.
type releases struct {
	view View
	pods corev1client.PodInterface
	// reflected is false once the namespace is no longer reflected; guarded by the mu of the Forwarder.
	reflected bool

	mu sync.Mutex
	// assigned are the pods that this process may have forwarded, by name; guarded by mu.
	assigned map[string]assignment
	// uncertain has, by the name of the pod, the time since which a creation has no known result; guarded by mu.
	uncertain map[string]time.Time
	// removed has, by name, the UIDs of the ShadowPods that this process has tried to delete because their pods were
	// moved away, until the cache shows something else; guarded by mu.
	removed map[string]types.UID
}

// assignment is the assignment of a pod to the VirtualNode.
type assignment struct {
	uid types.UID
	id  string
	// deleted means that the pod is being deleted, so it does not move.
	deleted bool
	// forwarded means that a ShadowPod existed, or may have been created.
	forwarded bool
}

// releasesOf returns the releases of a namespace, always the same object.
func (f *Forwarder) releasesOf(namespace string) *releases {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.releases == nil {
		f.releases = map[string]*releases{}
	}
	if f.releases[namespace] == nil {
		f.releases[namespace] = &releases{
			view: f.View, pods: f.Pods(namespace), assigned: map[string]assignment{}, uncertain: map[string]time.Time{},
			removed: map[string]types.UID{},
		}
	}
	return f.releases[namespace]
}

// startNamespace returns the releases of a namespace that is reflected from now on.
func (f *Forwarder) startNamespace(namespace string) *releases {
	r := f.releasesOf(namespace)
	f.mu.Lock()
	defer f.mu.Unlock()
	r.reflected = true
	return r
}

// StopNamespace is called when a namespace is no longer reflected. Its releases are forgotten once no creation may
// still take effect there, at this call or a later one.
func (f *Forwarder) StopNamespace(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stopped := f.releases[namespace]; stopped != nil {
		stopped.reflected = false
	}
	maps.DeleteFunc(f.releases, func(_ string, r *releases) bool { return !r.reflected && r.certain() })
}

// certain reports whether every creation has a known result, or is too old to take effect.
func (r *releases) certain() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, since := range r.uncertain {
		if time.Since(since) < v1alpha1.CreationDeadline {
			return false
		}
	}
	return true
}

// observe records a pod that is assigned to the VirtualNode, and whether a ShadowPod of its name exists.
func (r *releases) observe(pod *corev1.Pod, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := assignment{
		uid: pod.UID, id: v1alpha1.Assignment(r.view.VirtualNode, pod), deleted: pod.DeletionTimestamp != nil, forwarded: there,
	}
	if before := r.assigned[pod.Name]; before.uid == now.uid && before.id == now.id {
		now.forwarded = now.forwarded || before.forwarded
	}
	r.assigned[pod.Name] = now
}

// observeRemoval records the ShadowPod of a pod that was moved away, before its deletion is requested. A nil ShadowPod
// clears the record.
func (r *releases) observeRemoval(name string, shadow *offloadingv1beta1.ShadowPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if shadow == nil {
		delete(r.removed, name)
		return
	}
	r.removed[name] = shadow.UID
	r.markForwarded(name)
}

// removes reports whether the cache still shows the ShadowPod whose deletion was requested when its pod was moved away,
// even if that deletion failed. Once the cache shows anything else, it forgets the ShadowPod.
func (r *releases) removes(name string, shadow *offloadingv1beta1.ShadowPod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, removed := r.removed[name]
	if removed && (shadow == nil || shadow.UID != uid) {
		delete(r.removed, name)
		return false
	}
	return removed
}

// observeCreate records the result of the creation of a ShadowPod. Only a rejection by the API server proves that it
// was not created. After any other error, including an answer of a proxy, the API server may have stored it. A later
// rejection proves nothing about an earlier uncertain creation: the quota may already have counted that one.
func (r *releases) observeCreate(name string, err error) {
	if errors.Is(err, errUnsent) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil || kerrors.IsAlreadyExists(err):
		delete(r.uncertain, name)
	case refuses(err):
		return
	default:
		r.uncertain[name] = time.Now()
	}
	r.markForwarded(name)
}

// observeThere records that the provider has, or may have, a ShadowPod of a pod.
func (r *releases) observeThere(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.markForwarded(name)
}

// markForwarded must be called with mu held.
func (r *releases) markForwarded(name string) {
	if at, assigned := r.assigned[name]; assigned {
		at.forwarded = true
		r.assigned[name] = at
	}
}

// refuses reports whether an error is a 4xx answer of an API server, which then has stored nothing. A 408 comes from a
// proxy.
func refuses(err error) bool {
	status := kerrors.APIStatus(nil)
	if !errors.As(err, &status) || kerrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// reportEnd writes the status of a pod that ended while it was being moved away, before its ShadowPod is deleted: the
// pod must not run again. It does nothing if another VirtualNode has the pod now, or if the pod was not moved away from
// this VirtualNode.
func (r *releases) reportEnd(ctx context.Context, name string, uid types.UID, there *corev1.PodStatus) error {
	pod, err := r.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading pod %s, which ended while it was being moved away: %w", name, err)
	case pod.UID != uid || pod.DeletionTimestamp != nil || placement.Terminal(pod) || pod.Labels[v1alpha1.VirtualNodeLabel] != "" ||
		placement.MovingFrom(pod) != (scheduler.Place{Provider: r.view.Provider, VirtualNode: r.view.VirtualNode}):
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}, "status": placement.EndedStatus(there),
	})
	if err != nil {
		return err
	}
	_, err = r.pods.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	switch {
	case err == nil, kerrors.IsNotFound(err):
		return nil
	case placement.NeverAccepted(err), kerrors.IsForbidden(err):
		return nil // A status that the API server never accepts must not block the move.
	}
	return fmt.Errorf("writing the terminal status of pod %s: %w", name, err)
}

// release tells the broker once that a pod was released, if it was moved away while it lived.
func (r *releases) release(ctx context.Context, name string) error {
	r.mu.Lock()
	left, assigned := r.assigned[name]
	since, uncertain := r.uncertain[name]
	delete(r.assigned, name)
	delete(r.uncertain, name)
	r.mu.Unlock()
	if !assigned || left.deleted || uncertain && time.Since(since) < v1alpha1.CreationDeadline {
		return nil
	}
	annotations := map[string]string{v1alpha1.ReleasedAnnotation: left.id}
	if !left.forwarded {
		annotations[v1alpha1.NotForwardedAnnotation] = left.id
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": left.uid, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = r.pods.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, again := r.assigned[name]; !again {
			r.assigned[name] = left
		}
		return fmt.Errorf("reporting to the broker that pod %s was released: %w", name, err)
	}
	return nil
}
