package podip

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	ipamclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/ipam/v1alpha1"
	ipamlisters "github.com/liqotech/liqo/pkg/client/listers/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/pkg/remap"
)

// repairer is a reflector of pods whose addresses change while they run: it makes Liqo map each new address.
type repairer struct {
	*locator
	localNamespace string
	remapper       *remap.Remapper
}

func (r *repairer) Handle(ctx context.Context, name string) error {
	if err := r.locator.Handle(ctx, name); err != nil {
		return err
	}
	// The cache has no other error than NotFound.
	local, _ := r.local.Get(name)
	if local == nil {
		r.remapper.Forget(types.NamespacedName{Namespace: r.localNamespace, Name: name})
		return nil
	}
	if r.writes.awaited(name, local) {
		return nil // The shown address is not known yet.
	}
	return r.remapper.Remap(ctx, local)
}

// podIPs implements remap.Client in one namespace.
type podIPs struct {
	ips      ipamlisters.IPNamespaceLister
	client   ipamclient.IPInterface
	annotate func(ctx context.Context, local *corev1.Pod, annotations map[string]any) error
}

func (c *podIPs) GetIP(_ context.Context, name types.NamespacedName) (*ipamv1alpha1.IP, error) {
	return c.ips.Get(name.Name)
}

func (c *podIPs) DeleteIP(ctx context.Context, ip *ipamv1alpha1.IP) error {
	err := c.client.Delete(ctx, ip.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(ip.UID)}})
	if kerrors.IsForbidden(err) {
		return fmt.Errorf("bind the ClusterRole liqo-broker-vk-addresses of deploy/virtual-kubelet-addresses.yaml: %w", err)
	}
	return err
}

func (c *podIPs) Annotate(ctx context.Context, local *corev1.Pod, annotations map[string]any) error {
	return c.annotate(ctx, local, annotations)
}
