package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
)

// podIPs reads and writes the IPs of pods. It implements remap.Client.
type podIPs struct{ *Controller }

func (c podIPs) GetIP(ctx context.Context, name types.NamespacedName) (*ipamv1alpha1.IP, error) {
	ip := &ipamv1alpha1.IP{}
	return ip, c.Client.Get(ctx, name, ip)
}

func (c podIPs) DeleteIP(ctx context.Context, ip *ipamv1alpha1.IP) error {
	err := c.Client.Delete(ctx, ip, client.Preconditions{UID: &ip.UID})
	if err == nil {
		c.Log.Info("Deleted the IP of a previous address", "pod", client.ObjectKeyFromObject(ip), "address", string(ip.Spec.IP))
	}
	return err
}

func (c podIPs) Annotate(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error {
	return c.write.Patch(ctx, pod, map[string]any{"annotations": annotations})
}

// remapAddress has the address of a pod mapped again if Liqo has mapped another one.
func (c *Controller) remapAddress(ctx context.Context, pod *corev1.Pod) error {
	if !c.MapsAddresses {
		return nil
	}
	return c.remapper.Remap(ctx, pod)
}

// forgetAddress deletes the IP of a pod that has left its provider, and gets another address at the next one.
func (c *Controller) forgetAddress(ctx context.Context, pod *corev1.Pod) error {
	if !c.MapsAddresses {
		return nil
	}
	ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := c.Client.Delete(ctx, ip); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("IP of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
