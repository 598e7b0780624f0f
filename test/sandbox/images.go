package sandbox

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
)

// DefaultTemplate is the VkOptionsTemplate that Liqo's webhook uses.
var DefaultTemplate = client.ObjectKey{Namespace: liqochart.Namespace, Name: "virtual-kubelet-default"}

// measured has virtual kubelets serve metrics, where deploy/observability looks for
// them. The chart's own value would have all of Liqo do so.
func measured(rendered []*unstructured.Unstructured) error {
	for _, o := range rendered {
		if o.GetKind() != "VkOptionsTemplate" {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, true, "spec", "metricsEnabled"); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(o.Object, ":8082", "spec", "metricsAddress"); err != nil {
			return err
		}
	}
	return nil
}

// UseImage makes all virtual kubelets of the cluster run the image, and waits
// until each of them has taken over its node.
//
// The image of a VirtualNode's Deployment is fixed when the VirtualNode is
// created (Liqo's pkg/webhooks/virtualnode), so both the template and the
// VirtualNodes are changed.
func (c *Cluster) UseImage(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var template offloadingv1beta1.VkOptionsTemplate
		if err := c.Client.Get(ctx, DefaultTemplate, &template); err != nil {
			return err
		}
		template.Spec.ContainerImage = image
		return c.Client.Update(ctx, &template)
	})
	if err != nil {
		return err
	}
	for _, provider := range c.sandbox.providersOf(c) {
		key := client.ObjectKey{Namespace: tenantNamespace(provider), Name: provider}
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			var vn offloadingv1beta1.VirtualNode
			if err := c.Client.Get(ctx, key, &vn); err != nil {
				return err
			}
			vn.Spec.Template.Spec.Template.Spec.Containers[0].Image = image
			return c.Client.Update(ctx, &vn)
		})
		if err != nil {
			return err
		}
		if err := poll(ctx, func(ctx context.Context) error { return c.takenOver(ctx, key, image) }); err != nil {
			return err
		}
		if c.servesBrokerNode() {
			continue
		}
		if err := c.WaitNodeReady(ctx, provider); err != nil {
			return err
		}
	}
	return nil
}

// takenOver answers nil once the only pods of a virtual kubelet run the image
// and one of them holds the node's lease.
func (c *Cluster) takenOver(ctx context.Context, vn client.ObjectKey, image string) error {
	var d appsv1.Deployment
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: vn.Namespace, Name: "vk-" + vn.Name}, &d); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(vn.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return err
	}
	var lease coordinationv1.Lease
	if err := c.Client.Get(ctx, vn, &lease); err != nil {
		return err
	}
	leads := false
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.Containers[0].Image != image {
			return fmt.Errorf("pod %s still runs %s", p.Name, p.Spec.Containers[0].Image)
		} else if p.Name == ptr.Deref(lease.Spec.HolderIdentity, "") {
			leads = true
		}
	}
	if !leads {
		return fmt.Errorf("lease %s is held by %q", vn, ptr.Deref(lease.Spec.HolderIdentity, ""))
	}
	// The second election decides who reflects all but pods; a predecessor that
	// did not give its lease back is waited for.
	node := ptr.Deref(lease.Spec.HolderIdentity, "")
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: vn.Namespace, Name: "virtual-kubelet-leader-election"}, &lease); err != nil {
		return err
	}
	if all := ptr.Deref(lease.Spec.HolderIdentity, ""); all != node {
		return fmt.Errorf("the lease of the reflection is held by %q, that of the node by %q", all, node)
	}
	return nil
}
