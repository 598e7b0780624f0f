package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
)

// DefaultTemplate is the VkOptionsTemplate that Liqo's webhook uses.
var DefaultTemplate = client.ObjectKey{Namespace: liqochart.Namespace, Name: "virtual-kubelet-default"}

const (
	// switchTimeout bounds a change between the broker and stock Liqo.
	switchTimeout = 3 * time.Minute
	// brokerReplicas is the number of replicas in deploy/.
	brokerReplicas = 2
)

// measured makes virtual kubelets serve metrics, at the address where deploy/observability scrapes them. The chart's
// own value would make all of Liqo's components do so.
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

// UseImage makes all virtual kubelets of the cluster run the image, and waits until each of them has taken over its
// node.
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
		err := c.updateVirtualNode(ctx, key, func(vn *offloadingv1beta1.VirtualNode) {
			vn.Spec.Template.Spec.Template.Spec.Containers[0].Image = image
		})
		if err != nil {
			return err
		}
		if err := poll(ctx, func(ctx context.Context) error { return c.TakenOver(ctx, key, image) }); err != nil {
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

// UseStockNodes ends the broker, and has Liqo's own virtual kubelets serve a Node for each provider.
func (c *Cluster) UseStockNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	if err := c.scaleBroker(ctx, 0); err != nil {
		return err
	}
	// It is deleted instead of becoming NotReady: kube-scheduler would still bind pods to it for a while.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.sandbox.opts.BrokerNode}}
	if err := client.IgnoreNotFound(c.Client.Delete(ctx, node)); err != nil {
		return err
	}
	return c.switchKubelets(ctx, ImageStock, func(vn *offloadingv1beta1.VirtualNode, own []string) {
		container := &vn.Spec.Template.Spec.Template.Spec.Containers[0]
		container.Args = slices.DeleteFunc(container.Args, func(arg string) bool { return slices.Contains(own, arg) })
		vn.Spec.CreateNode = ptr.To(true)
	}, func(ctx context.Context, provider string) error { return c.WaitNodeReady(ctx, provider) })
}

// UseBroker undoes UseStockNodes: the broker runs, and one Node represents all providers.
func (c *Cluster) UseBroker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	err := c.switchKubelets(ctx, ImageOurs, func(vn *offloadingv1beta1.VirtualNode, own []string) {
		container := &vn.Spec.Template.Spec.Template.Spec.Containers[0]
		for _, arg := range own {
			if !slices.Contains(container.Args, arg) {
				container.Args = append(container.Args, arg)
			}
		}
		vn.Spec.CreateNode = ptr.To(false)
	}, func(ctx context.Context, provider string) error {
		return poll(ctx, func(ctx context.Context) error {
			err := c.Client.Get(ctx, client.ObjectKey{Name: provider}, &corev1.Node{})
			if err == nil {
				return fmt.Errorf("node %s is still there", provider)
			}
			return client.IgnoreNotFound(err)
		})
	})
	if err != nil {
		return err
	}
	if err := c.scaleBroker(ctx, brokerReplicas); err != nil {
		return err
	}
	return c.WaitNodeReady(ctx, c.sandbox.opts.BrokerNode)
}

// switchKubelets changes the VirtualNodes of a cluster with a broker. change also gets the arguments that only our
// virtual kubelet knows. Liqo's webhook sets --create-node itself (pkg/webhooks/virtualnode/mutate.go), and its
// controller deletes the Node of a VirtualNode that has none
// (pkg/liqo-controller-manager/offloading/virtualnode-controller).
func (c *Cluster) switchKubelets(
	ctx context.Context, image string, change func(*offloadingv1beta1.VirtualNode, []string), then func(context.Context, string) error,
) error {
	own := c.OwnKubeletArgs()
	for _, provider := range c.sandbox.providersOf(c) {
		key := client.ObjectKey{Namespace: tenantNamespace(provider), Name: provider}
		err := c.updateVirtualNode(ctx, key, func(vn *offloadingv1beta1.VirtualNode) {
			change(vn, own)
			vn.Spec.Template.Spec.Template.Spec.Containers[0].Image = image
		})
		if err != nil {
			return err
		}
	}
	for _, provider := range c.sandbox.providersOf(c) {
		key := client.ObjectKey{Namespace: tenantNamespace(provider), Name: provider}
		if err := poll(ctx, func(ctx context.Context) error { return c.TakenOver(ctx, key, image) }); err != nil {
			return err
		}
		if err := then(ctx, provider); err != nil {
			return err
		}
	}
	return nil
}

// OwnKubeletArgs returns the arguments of the virtual kubelets in a cluster with a broker that Liqo's own virtual
// kubelet does not know: it exits at once with any of them.
func (c *Cluster) OwnKubeletArgs() []string {
	return append([]string{"--broker-node=" + c.sandbox.opts.BrokerNode}, c.sandbox.opts.BrokerKubeletArgs...)
}

func (c *Cluster) updateVirtualNode(ctx context.Context, key client.ObjectKey, change func(*offloadingv1beta1.VirtualNode)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var vn offloadingv1beta1.VirtualNode
		if err := c.Client.Get(ctx, key, &vn); err != nil {
			return err
		}
		change(&vn)
		return c.Client.Update(ctx, &vn)
	})
}

// scaleBroker sets the number of the broker's replicas, and waits until that many run.
func (c *Cluster) scaleBroker(ctx context.Context, replicas int32) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: BrokerComponent, Name: BrokerComponent}}
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	if err := c.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas != replicas || d.Status.AvailableReplicas != replicas {
			return fmt.Errorf("%d replicas of the broker, %d available; want %d", d.Status.Replicas, d.Status.AvailableReplicas, replicas)
		}
		return nil
	})
}

// TakenOver returns nil once all pods of a virtual kubelet run the image, and one of them holds the node's lease.
func (c *Cluster) TakenOver(ctx context.Context, vn client.ObjectKey, image string) error {
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
	// The second election decides which replica reflects everything except pods. If the previous holder did not release
	// its lease, wait until it expires.
	node := ptr.Deref(lease.Spec.HolderIdentity, "")
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: vn.Namespace, Name: "virtual-kubelet-leader-election"}, &lease); err != nil {
		return err
	}
	if all := ptr.Deref(lease.Spec.HolderIdentity, ""); all != node {
		return fmt.Errorf("the lease of the reflection is held by %q, that of the node by %q", all, node)
	}
	return nil
}
