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

// releases tells the broker that a pod which leaves was let go, and remembers what was deleted then. Until then a ShadowPod may appear at the provider after the
// broker has seen none there, because its creation was on the way.
//
// Liqo handles one pod in one worker at a time, so no creation is on the way when a pod that left is handled. Only a creation
// whose result is not known may still happen; then nothing is written, and the broker waits for a deadline.
type releases struct {
	view View
	pods corev1client.PodInterface
	// reflected is false once the namespace is not reflected any more; guarded by the mu of the Forwarder.
	reflected bool

	mu sync.Mutex
	// assigned are the pods that this process may have forwarded, by name; guarded by mu.
	assigned map[string]assignment
	// uncertain is, by the name of the pod, since when a creation has no known result; guarded by mu.
	uncertain map[string]time.Time
	// removed are, by name, the UIDs of the ShadowPods that this process has asked to delete because their pods left, until
	// the cache shows something else; guarded by mu.
	removed map[string]types.UID
}

// assignment is one of a pod to the VirtualNode.
type assignment struct {
	uid types.UID
	id  string
	// deleted means that the pod is being deleted: it does not move.
	deleted bool
	// forwarded means that a ShadowPod was there, or may have been created.
	forwarded bool
}

// releasesOf returns those of a namespace, the same each time.
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

// startNamespace returns those of a namespace that is reflected from now on.
func (f *Forwarder) startNamespace(namespace string) *releases {
	r := f.releasesOf(namespace)
	f.mu.Lock()
	defer f.mu.Unlock()
	r.reflected = true
	return r
}

// StopNamespace is called when a namespace is no longer reflected. What is known of it is forgotten once no creation may
// still happen there, at this call or a later one.
func (f *Forwarder) StopNamespace(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stopped := f.releases[namespace]; stopped != nil {
		stopped.reflected = false
	}
	maps.DeleteFunc(f.releases, func(_ string, r *releases) bool { return !r.reflected && r.certain() })
}

// certain reports whether the result of every creation is known, or none of them may still happen.
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

// observe records a pod that is assigned to the VirtualNode, and whether a ShadowPod of its name is there.
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

// observeRemoval remembers the ShadowPod of a pod that has left, before its deletion is asked for. Nil forgets it.
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

// removes reports whether the cache still shows the ShadowPod whose deletion was asked for when its pod left, also if that
// failed. It forgets it once the cache shows anything else.
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

// observeCreate records the result of the creation of a ShadowPod. Only a refusal means that it was not created: any other error, also
// an answer of a proxy in between, may come after the API server has stored it. A later refusal does not decide about that
// creation: its quota may have counted it already.
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

// markForwarded is called with mu held.
func (r *releases) markForwarded(name string) {
	if at, assigned := r.assigned[name]; assigned {
		at.forwarded = true
		r.assigned[name] = at
	}
}

// refuses reports whether an error is the answer 4xx of an API server, which stores nothing then. 408 is that of a proxy.
func refuses(err error) bool {
	status := kerrors.APIStatus(nil)
	if !errors.As(err, &status) || kerrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// reportEnd writes the status of a pod that has ended while it was leaving, before its ShadowPod is deleted: it must not run again.
// A pod that another VirtualNode has by now is left alone, and so is one that this VirtualNode did not lose to a move.
func (r *releases) reportEnd(ctx context.Context, name string, uid types.UID, there *corev1.PodStatus) error {
	pod, err := r.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("pod %s, which ended while it was leaving: %w", name, err)
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
		return nil // A status that the API server never accepts must not keep the pod from leaving.
	}
	return fmt.Errorf("telling that pod %s has ended: %w", name, err)
}

// release writes once that a pod was let go, if it has left while it lived.
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
		return fmt.Errorf("telling the broker that pod %s was let go: %w", name, err)
	}
	return nil
}
