package provider

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	ipamclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/ipam/v1alpha1"
	ipamlisters "github.com/liqotech/liqo/pkg/client/listers/ipam/v1alpha1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// mappedReflector is a reflector of pods whose addresses change while they live. Liqo maps the address of each by an IP
// object of its name, whose spec.ip cannot be changed: its controller fails for ever, and with it the EndpointSlices
// that the other clusters see. So an IP that maps an address which its pod no longer has is deleted; and since Liqo does
// not watch its IPs, the pod is touched as soon as the IP is gone.
type mappedReflector struct {
	manager.NamespacedReflector
	local corev1listers.PodNamespaceLister
	ips   ipamlisters.IPNamespaceLister
	// client and touch write.
	client ipamclient.IPInterface
	touch  func(ctx context.Context, local *corev1.Pod, annotations map[string]any) error

	mu sync.Mutex
	// unmapped are the pods whose IP was deleted and not seen gone yet; guarded by mu.
	unmapped map[string]types.UID
}

// Handle implements manager.NamespacedReflector.
func (r *mappedReflector) Handle(ctx context.Context, name string) error {
	if err := r.NamespacedReflector.Handle(ctx, name); err != nil {
		return err
	}
	// The caches fail for one reason only: there is no such object.
	local, _ := r.local.Get(name)
	if local == nil || local.Status.PodIP == "" || local.DeletionTimestamp != nil {
		r.settle(name)
		return nil
	}
	ip, _ := r.ips.Get(name)
	switch {
	case ip == nil:
		if !r.wasUnmapped(local) {
			return nil // Liqo is about to map it.
		}
		if err := r.touch(ctx, local, map[string]any{v1alpha1.AddressAnnotation: local.Status.PodIP}); err != nil {
			return err
		}
		r.settle(name)
		return nil
	case string(ip.Spec.IP) == local.Status.PodIP || ip.DeletionTimestamp != nil || !ofPod(ip):
		return nil
	}
	r.mu.Lock()
	r.unmapped[name] = local.UID
	r.mu.Unlock()
	err := r.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(ip.UID)}})
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) {
		return fmt.Errorf("stale IP %s/%s (bind the ClusterRole liqo-broker-vk-addresses of deploy/virtual-kubelet-addresses.yaml): %w",
			local.Namespace, name, err)
	}
	return nil
}

// wasUnmapped says whether the IP of a pod was deleted.
func (r *mappedReflector) wasUnmapped(local *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unmapped[local.Name] == local.UID
}

// settle forgets that the IP of a pod was deleted.
func (r *mappedReflector) settle(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unmapped, name)
}

// ofPod says whether Liqo made the IP for a pod (ipmapping.CreateOrUpdateIP).
func ofPod(ip *ipamv1alpha1.IP) bool {
	return slices.ContainsFunc(ip.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" && o.Name == ip.Name })
}
