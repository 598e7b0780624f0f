// Package peering reads Liqo's objects in this cluster for one provider: VirtualNodes, NamespaceMaps, ResourceSlices,
// the ForeignCluster. Objects of the first three kinds count only in the provider's own tenant namespace: other
// clusters may write into theirs.
package peering

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// VirtualNodes returns the VirtualNodes of a provider that the selector selects, by name, and the names that more than
// one VirtualNode of any provider has.
func VirtualNodes(
	ctx context.Context, reader client.Reader, selector labels.Selector, id string,
) (own []*offloadingv1beta1.VirtualNode, shared sets.Set[string], err error) {
	var list offloadingv1beta1.VirtualNodeList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	seen, shared := sets.New[string](), sets.New[string]()
	for i := range list.Items {
		vn := &list.Items[i]
		if seen.Has(vn.Name) {
			shared.Insert(vn.Name)
		}
		seen.Insert(vn.Name)
		if string(vn.Spec.ClusterID) == id && selector.Matches(labels.Set(vn.Labels)) {
			own = append(own, vn)
		}
	}
	own, err = inTenantOf(ctx, reader, id, own)
	return own, shared, err
}

// VirtualNodeNames returns the names of all VirtualNodes of a provider, also of those outside of its tenant namespace.
func VirtualNodeNames(ctx context.Context, reader client.Reader, id string) (sets.Set[string], error) {
	var list offloadingv1beta1.VirtualNodeList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("VirtualNodes: %w", err)
	}
	names := sets.New[string]()
	for i := range list.Items {
		if vn := &list.Items[i]; string(vn.Spec.ClusterID) == id {
			names.Insert(vn.Name)
		}
	}
	return names, nil
}

// NamespaceMaps returns those that offload namespaces to a provider. The names in them decide whose pods the broker
// asks about, and connects callers with.
func NamespaceMaps(ctx context.Context, reader client.Reader, id string) ([]*offloadingv1beta1.NamespaceMap, error) {
	var list offloadingv1beta1.NamespaceMapList
	if err := reader.List(ctx, &list, client.MatchingLabels{consts.RemoteClusterID: id}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var own []*offloadingv1beta1.NamespaceMap
	for i := range list.Items {
		if placement.OffloadsTo(&list.Items[i]) == id {
			own = append(own, &list.Items[i])
		}
	}
	return inTenantOf(ctx, reader, id, own)
}

// RemoteNamespaces returns the names of namespaces at a provider, by their local names. Those that are coming or going
// are among them.
func RemoteNamespaces(maps []*offloadingv1beta1.NamespaceMap) map[string]string {
	mapped := map[string]string{}
	for _, m := range maps {
		for local, at := range m.Status.CurrentMapping {
			mapped[local] = at.RemoteNamespace
		}
	}
	return mapped
}

// AskedOf returns the provider that this cluster asks for resources by a ResourceSlice; "" for a slice of a consumer,
// which Liqo has replicated here.
func AskedOf(slice *authv1beta1.ResourceSlice) string {
	if slice.Labels[consts.ReplicationOriginLabel] != "" {
		return ""
	}
	return string(ptr.Deref(slice.Spec.ProviderClusterID, ""))
}

// ResourceSlices returns those by which this cluster asks a provider for resources, by name.
func ResourceSlices(ctx context.Context, reader client.Reader, id string) ([]*authv1beta1.ResourceSlice, error) {
	var list authv1beta1.ResourceSliceList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var asked []*authv1beta1.ResourceSlice
	for i := range list.Items {
		if slice := &list.Items[i]; AskedOf(slice) == id {
			asked = append(asked, slice)
		}
	}
	return inTenantOf(ctx, reader, id, asked)
}

// NetworkConnected reports whether Liqo's network to a cluster is established, or not Liqo's concern. Unknown is not
// connected.
func NetworkConnected(ctx context.Context, reader client.Reader, id string) (bool, error) {
	var list liqov1beta1.ForeignClusterList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range list.Items {
		if string(list.Items[i].Spec.ClusterID) == id {
			return fcutils.IsNetworkingEstablishedOrDisabled(&list.Items[i]), nil
		}
	}
	return false, nil
}

// TenantNamespace returns the namespace in which Liqo keeps the objects of a cluster (placement.TenantOf), the first by
// name; "" if there is none.
func TenantNamespace(ctx context.Context, reader client.Reader, id string) (string, error) {
	var list corev1.NamespaceList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	first := ""
	for i := range list.Items {
		if name := list.Items[i].Name; placement.TenantOf(&list.Items[i]) == id && (first == "" || name < first) {
			first = name
		}
	}
	return first, nil
}

// inTenantOf returns the objects that are in the tenant namespace of a cluster (placement.TenantOf), by name.
func inTenantOf[T client.Object](ctx context.Context, reader client.Reader, id string, objects []T) (own []T, err error) {
	for _, o := range objects {
		var tenant corev1.Namespace
		err := reader.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, &tenant, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if placement.TenantOf(&tenant) == id {
			own = append(own, o)
		}
	}
	slices.SortFunc(own, func(a, b T) int {
		return cmp.Or(strings.Compare(a.GetName(), b.GetName()), strings.Compare(a.GetNamespace(), b.GetNamespace()))
	})
	return own, nil
}
