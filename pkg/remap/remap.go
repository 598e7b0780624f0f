// Package remap makes Liqo map the address of a pod again after the address has changed.
//
// Liqo maps the address of an offloaded pod by an IP object of the name of the pod. The spec.ip of an IP is immutable,
// so Liqo's controller fails as long as the IP has the previous address, and so does the reflection of the pod's
// EndpointSlices. Liqo does not watch its IPs. So Remap deletes the IP and, once it no longer exists, annotates the
// pod, which makes Liqo reconcile the pod.
package remap

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Client reads and writes the cluster of the pods.
type Client interface {
	// GetIP returns an IP, or an error that is NotFound.
	GetIP(ctx context.Context, name types.NamespacedName) (*ipamv1alpha1.IP, error)
	// DeleteIP deletes the IP with that UID.
	DeleteIP(ctx context.Context, ip *ipamv1alpha1.IP) error
	// Annotate sets annotations of a pod.
	Annotate(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error
}

// Remapper replaces outdated IPs of pods. The caller calls Remap for a pod again when its IP changes.
type Remapper struct {
	client Client

	mu sync.Mutex
	// deleted are the UIDs of the pods whose IP was deleted and is not known to be gone; guarded by mu.
	deleted map[types.NamespacedName]types.UID
}

// New returns a Remapper of the pods of a client.
func New(client Client) *Remapper {
	return &Remapper{client: client, deleted: map[types.NamespacedName]types.UID{}}
}

// Remap deletes the IP of a pod if it maps another address than the pod's, and annotates the pod when that IP no longer
// exists.
func (r *Remapper) Remap(ctx context.Context, pod *corev1.Pod) error {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	switch {
	case pod.DeletionTimestamp != nil:
		r.Forget(name)
		return nil
	case pod.Status.PodIP == "":
		return nil
	}
	ip, err := r.client.GetIP(ctx, name)
	switch {
	case kerrors.IsNotFound(err):
		if !r.wasDeleted(name, pod.UID) {
			return nil // Liqo has not mapped the address yet.
		}
		err := r.client.Annotate(ctx, pod, map[string]any{v1alpha1.AddressAnnotation: pod.Status.PodIP})
		if err == nil || kerrors.IsNotFound(err) {
			r.Forget(name)
			return nil
		}
		return err
	case err != nil:
		return err
	case string(ip.Spec.IP) == pod.Status.PodIP || ip.DeletionTimestamp != nil || !OfPod(ip):
		return nil
	}
	r.mu.Lock()
	r.deleted[name] = pod.UID
	r.mu.Unlock()
	if err := r.client.DeleteIP(ctx, ip); err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) {
		return fmt.Errorf("IP of a previous address of pod %s: %w", name, err)
	}
	return nil
}

// Forget drops the state of a pod.
func (r *Remapper) Forget(pod types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.deleted, pod)
}

func (r *Remapper) wasDeleted(pod types.NamespacedName, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	deleted, found := r.deleted[pod]
	return found && deleted == uid
}

// OfPod reports whether Liqo made the IP for the pod of its name (ipmapping.CreateOrUpdateIP).
func OfPod(ip *ipamv1alpha1.IP) bool {
	return slices.ContainsFunc(ip.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" && o.Name == ip.Name })
}
