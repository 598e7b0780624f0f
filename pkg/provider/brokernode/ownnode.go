package brokernode

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// OnOwnNode returns the reflector with the pods of the view shown as bound to Liqo's node. Liqo's service account
// reflector marks the Secrets with tokens by the node of the pod, where all others do by Liqo's node name; marked with
// the broker's node, they would be nobody's, and stay behind when a pod leaves while its virtual kubelet is down.
func (v View) OnOwnNode(reflector manager.Reflector) manager.Reflector {
	return onOwnNode{Reflector: reflector, view: v}
}

type onOwnNode struct {
	manager.Reflector
	view View
}

func (r onOwnNode) Start(ctx context.Context, opts *options.ReflectorOpts) {
	seen := *opts
	seen.LocalPodInformer = ownNodeInformer{PodInformer: opts.LocalPodInformer, node: r.view.LiqoNodeName}
	r.Reflector.Start(ctx, &seen)
}

type ownNodeInformer struct {
	corev1informers.PodInformer
	node string
}

func (i ownNodeInformer) Lister() corev1listers.PodLister {
	return ownNodeLister{PodLister: i.PodInformer.Lister(), node: i.node}
}

type ownNodeLister struct {
	corev1listers.PodLister
	node string
}

func (l ownNodeLister) Pods(namespace string) corev1listers.PodNamespaceLister {
	return ownNodeNamespace{PodNamespaceLister: l.PodLister.Pods(namespace), node: l.node}
}

// ownNodeNamespace shows the pod asked for by name; Liqo lists pods for their keys only.
type ownNodeNamespace struct {
	corev1listers.PodNamespaceLister
	node string
}

func (l ownNodeNamespace) Get(name string) (*corev1.Pod, error) {
	pod, err := l.PodNamespaceLister.Get(name)
	if err != nil {
		return nil, err
	}
	shown := *pod
	shown.Spec.NodeName = l.node
	return &shown, nil
}
