package kubelet

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	virtualkubeletv1alpha1 "github.com/liqotech/liqo/apis/virtualkubelet/v1alpha1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	virtualkubeletclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/virtualkubelet/v1alpha1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/namespacemap"
)

// offloading is a client whose NamespaceMaps show only namespaces as Accepted that this cluster has offloaded. Liqo
// reflects all namespaces that the status of a map names (namespacemap.Handler), and the remote cluster writes that
// status (package namespacemap).
type offloading struct{ liqoclient.Interface }

// VirtualkubeletV1alpha1 implements liqoclient.Interface.
func (o offloading) VirtualkubeletV1alpha1() virtualkubeletclient.VirtualkubeletV1alpha1Interface {
	return offloadingGroup{o.Interface.VirtualkubeletV1alpha1()}
}

type offloadingGroup struct {
	virtualkubeletclient.VirtualkubeletV1alpha1Interface
}

func (g offloadingGroup) NamespaceMaps(namespace string) virtualkubeletclient.NamespaceMapInterface {
	return offloadingMaps{g.VirtualkubeletV1alpha1Interface.NamespaceMaps(namespace)}
}

type offloadingMaps struct {
	virtualkubeletclient.NamespaceMapInterface
}

func (m offloadingMaps) List(ctx context.Context, opts metav1.ListOptions) (*virtualkubeletv1alpha1.NamespaceMapList, error) {
	list, err := m.NamespaceMapInterface.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		list.Items[i] = *onlyOffloaded(&list.Items[i])
	}
	return list, nil
}

func (m offloadingMaps) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	changes, err := m.NamespaceMapInterface.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(changes, func(in watch.Event) (watch.Event, bool) {
		if m, is := in.Object.(*virtualkubeletv1alpha1.NamespaceMap); is {
			in.Object = onlyOffloaded(m)
		}
		return in, true
	}), nil
}

// onlyOffloaded returns a copy of a map. No namespace counts as offloaded in a map that the remote cluster sent for its
// own namespaces.
func onlyOffloaded(m *virtualkubeletv1alpha1.NamespaceMap) *virtualkubeletv1alpha1.NamespaceMap {
	only, sent := m.DeepCopy(), m.Labels[consts.ReplicationOriginLabel] != ""
	for namespace, at := range m.Status.CurrentMapping {
		if at.Phase == virtualkubeletv1alpha1.MappingAccepted &&
			(sent || !namespacemap.Asked(m.Spec.DesiredMapping, m.Namespace, namespace, at.RemoteNamespace)) {
			delete(only.Status.CurrentMapping, namespace)
		}
	}
	return only
}
