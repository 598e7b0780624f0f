package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
)

// rootReflector is a reflector of pods that says on each local pod where it really runs, before Liqo gives the pod its
// address: whoever reads both never takes the last place for that of a new address.
type rootReflector struct {
	manager.NamespacedReflector
	addresses *addresses
	// resolve returns the address under which a remote pod is shown.
	resolve func(remote *corev1.Pod) (string, error)
	local   corev1listers.PodNamespaceLister
	// remote lists the pods as they are, with the addresses that the remote cluster shows.
	remote corev1listers.PodNamespaceLister
	pods   corev1client.PodInterface
	events record.EventRecorder

	mu sync.Mutex
	// said is what was last said of a pod without an address; guarded by mu.
	said map[string]string
	// remoteIPs are the addresses that a remote IPAM was asked for, by pod; guarded by mu.
	remoteIPs map[string]string
}

// Handle implements manager.NamespacedReflector.
func (r *rootReflector) Handle(ctx context.Context, name string) error {
	// The caches fail for one reason only: there is no such object.
	local, _ := r.local.Get(name)
	remote, _ := r.remote.Get(name)
	if local == nil || remote == nil || !forge.IsReflected(remote) {
		r.say(nil, name, nil)
		r.track(name, "")
		return r.NamespacedReflector.Handle(ctx, name)
	}
	if brokernode.Terminal(remote) {
		// Nobody reaches it any more, and its address may be another's.
		r.say(nil, name, nil)
		r.track(name, "")
		return r.NamespacedReflector.Handle(ctx, name)
	}
	r.track(name, remote.Status.PodIP)
	if patch := missing(local, r.addresses.standsFor(local, remote)); patch != nil {
		if _, err := r.resolve(remote); err != nil && local.Status.PodIP != "" {
			// The address that it shows is that of another place, the one of this place is not known. It is taken away
			// before the place is written, or it would be taken for that of this place; that has the pod looked at again.
			return r.NamespacedReflector.Handle(ctx, name)
		}
		// The change has the pod looked at again.
		return r.annotate(ctx, local, patch)
	}
	err := r.NamespacedReflector.Handle(ctx, name)
	if err == nil && remote.Status.PodIP != "" {
		_, unknown := r.resolve(remote)
		r.say(local, name, unknown)
	}
	return err
}

// track has the remote IPAM forget the address that a remote pod had: another pod may get it.
func (r *rootReflector) track(name, ip string) {
	if r.addresses.Remote == nil {
		return
	}
	r.mu.Lock()
	before := r.remoteIPs[name]
	r.remoteIPs[name] = ip
	if ip == "" {
		delete(r.remoteIPs, name)
	}
	r.mu.Unlock()
	if before != "" && before != ip {
		r.addresses.Remote.Forget(before)
	}
}

// forgetAll has the remote IPAM forget the addresses of all pods: the namespace is not reflected any more.
func (r *rootReflector) forgetAll() {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.remoteIPs))
	r.mu.Unlock()
	for _, name := range names {
		r.track(name, "")
	}
}

// annotate changes annotations of the pod that was read, or of none.
func (r *rootReflector) annotate(ctx context.Context, local *corev1.Pod, patch map[string]any) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": local.ResourceVersion, "annotations": patch},
	})
	if err != nil {
		return err
	}
	_, err = r.pods.Patch(ctx, local.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: forge.ReflectionFieldManager})
	if err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("where pod %s/%s runs: %w", local.Namespace, local.Name, err)
	}
	return nil
}

// say tells by an event, once, why a pod has no address.
func (r *rootReflector) say(local *corev1.Pod, name string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == nil {
		delete(r.said, name)
		return
	}
	if r.said[name] == why.Error() || why.Error() == ipam.ErrPending.Error() {
		return // It is known in a moment.
	}
	r.said[name] = why.Error()
	r.events.Event(local, corev1.EventTypeWarning, "AddressUnknown", why.Error())
}
