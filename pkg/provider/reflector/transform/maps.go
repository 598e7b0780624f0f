package transform

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/namespacemap"
)

// Destined returns a client that lists and watches only the NamespaceMaps for a remote cluster, and in them only the
// namespaces that are offloaded to it. Liqo selects all maps that concern the remote cluster (namespacemap.NewHandler).
// A cluster that is both provider and consumer also sends maps for namespaces of its own, and Liqo would assume that
// they are namespaces of this cluster. Liqo also starts all namespaces that the status names, and the remote cluster
// writes the status (package namespacemap).
func Destined(client liqoclient.Interface, remote liqov1beta1.ClusterID) liqoclient.Interface {
	return destined{client, labels.Set{consts.ReplicationDestinationLabel: string(remote)}.String()}
}

type destined struct {
	liqoclient.Interface
	selector string
}

func (d destined) OffloadingV1beta1() offloadingclient.OffloadingV1beta1Interface {
	return destinedOffloading{d.Interface.OffloadingV1beta1(), d.selector}
}

// IsWatchListSemanticsUnSupported is called by client-go on fake clients.
func (d destined) IsWatchListSemanticsUnSupported() bool {
	client, ok := d.Interface.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && client.IsWatchListSemanticsUnSupported()
}

type destinedOffloading struct {
	offloadingclient.OffloadingV1beta1Interface
	selector string
}

func (d destinedOffloading) NamespaceMaps(namespace string) offloadingclient.NamespaceMapInterface {
	return destinedMaps{d.OffloadingV1beta1Interface.NamespaceMaps(namespace), d.selector}
}

type destinedMaps struct {
	offloadingclient.NamespaceMapInterface
	selector string
}

func (d destinedMaps) List(ctx context.Context, opts metav1.ListOptions) (*offloadingv1beta1.NamespaceMapList, error) {
	list, err := d.NamespaceMapInterface.List(ctx, d.selecting(opts))
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		list.Items[i] = *onlyOffloaded(&list.Items[i])
	}
	return list, nil
}

func (d destinedMaps) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	changes, err := d.NamespaceMapInterface.Watch(ctx, d.selecting(opts))
	if err != nil {
		return nil, err
	}
	return watch.Filter(changes, func(in watch.Event) (watch.Event, bool) {
		if m, is := in.Object.(*offloadingv1beta1.NamespaceMap); is {
			in.Object = onlyOffloaded(m)
		}
		return in, true
	}), nil
}

// onlyOffloaded returns a copy of a map whose status shows only offloaded namespaces as Accepted. Namespaces in other
// phases stay: Liqo does not start them.
func onlyOffloaded(m *offloadingv1beta1.NamespaceMap) *offloadingv1beta1.NamespaceMap {
	only := m.DeepCopy()
	for namespace, at := range m.Status.CurrentMapping {
		if at.Phase == offloadingv1beta1.MappingAccepted &&
			!namespacemap.Asked(m.Spec.DesiredMapping, m.Namespace, namespace, at.RemoteNamespace) {
			delete(only.Status.CurrentMapping, namespace)
		}
	}
	return only
}

func (d destinedMaps) selecting(opts metav1.ListOptions) metav1.ListOptions {
	if opts.LabelSelector != "" {
		opts.LabelSelector += ","
	}
	opts.LabelSelector += d.selector
	return opts
}
