package broker

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// mapsAddresses says whether Liqo's networking module is there, which maps the addresses of pods by IP objects.
func mapsAddresses(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: ipamv1alpha1.SchemeGroupVersion.Group, Kind: "IP"}, ipamv1alpha1.SchemeGroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// remapAddress has the address of a pod mapped anew when it is not the one that Liqo has mapped: spec.ip of an IP cannot
// be changed, and Liqo's controller fails for ever. Pods get other addresses when they move, and where they are, when
// their sandbox is made anew.
func (b *Broker) remapAddress(ctx context.Context, pod *corev1.Pod) error {
	if !b.addresses || pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
		return nil
	}
	var ip ipamv1alpha1.IP
	err := b.client.Get(ctx, nameOf(pod), &ip)
	switch {
	case kerrors.IsNotFound(err):
		if !b.core.mappedAnew(pod.UID) {
			return nil // Liqo is about to map it.
		}
		// Liqo looks at a pod when that changes, and else once in a while that doubles with every failure.
		return client.IgnoreNotFound(b.patchPod(ctx, pod, map[string]any{
			"annotations": map[string]any{v1alpha1.AddressAnnotation: pod.Status.PodIP},
		}))
	case err != nil:
		return err
	case string(ip.Spec.IP) == pod.Status.PodIP || ip.DeletionTimestamp != nil:
		return nil
	}
	b.core.unmapped(pod.UID)
	if err := b.client.Delete(ctx, &ip, client.Preconditions{UID: &ip.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stale IP of pod %s: %w", nameOf(pod), err)
	}
	b.log.Info("Removed a stale address", "pod", nameOf(pod), "mapped", string(ip.Spec.IP), "has", pod.Status.PodIP)
	return nil
}
