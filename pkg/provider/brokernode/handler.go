package brokernode

import (
	"context"
	"io"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// OwnPods answers the kubelet API for the pods of the view, and NotFound for all other pods: the provider cluster may
// have a pod of that name that another virtual kubelet forwards.
func (v View) OwnPods(handler workload.PodHandler, pods corev1listers.PodLister) workload.PodHandler {
	return ownPods{PodHandler: handler, view: v, pods: pods}
}

type ownPods struct {
	workload.PodHandler
	view View
	pods corev1listers.PodLister
}

// own returns an error of virtual-kubelet's type, which its HTTP handler converts into a 404, unless the pod is in the
// view.
func (p ownPods) own(namespace, name string) error {
	if _, err := p.pods.Pods(namespace).Get(name); err != nil {
		return errdefs.NotFoundf("pod %s/%s is not assigned to VirtualNode %s of %s; ask the node %s, "+
			"or the virtual kubelet of the VirtualNode in the pod's labels %s and %s",
			namespace, name, p.view.VirtualNode, p.view.Provider, p.view.Node, v1alpha1.VirtualNodeLabel, v1alpha1.ProviderLabel)
	}
	return nil
}

func (p ownPods) Exec(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
	if err := p.own(namespace, pod); err != nil {
		return err
	}
	return p.PodHandler.Exec(ctx, namespace, pod, container, cmd, attach)
}

func (p ownPods) Attach(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
	if err := p.own(namespace, pod); err != nil {
		return err
	}
	return p.PodHandler.Attach(ctx, namespace, pod, container, attach)
}

func (p ownPods) PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	if err := p.own(namespace, pod); err != nil {
		return err
	}
	return p.PodHandler.PortForward(ctx, namespace, pod, port, stream)
}

func (p ownPods) Logs(ctx context.Context, namespace, pod, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	if err := p.own(namespace, pod); err != nil {
		return nil, err
	}
	return p.PodHandler.Logs(ctx, namespace, pod, container, opts)
}
