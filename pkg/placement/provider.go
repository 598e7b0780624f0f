package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/namespacemap"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Provider translates a provider cluster for the scheduler, from its object, its VirtualNodes and the NamespaceMaps of
// its tenant namespace. If two VirtualNodes advertise the same label, the later one by name wins.
func Provider(pc *v1alpha1.ProviderCluster, virtualNodes []*offloadingv1beta1.VirtualNode,
	namespaceMaps []*offloadingv1beta1.NamespaceMap,
) scheduler.Provider {
	p := scheduler.Provider{
		ID: pc.Name, Labels: map[string]string{}, Attributes: pc.Spec.Attributes,
		Enabled: pc.Spec.IsEnabled(), Cordoned: pc.Spec.Cordoned, Draining: pc.Spec.Drain,
		Recovering: meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ProviderClean),
		Namespaces: sets.New[string](), KPIs: kpi.ValuesOf(&pc.Status.KPIs),
	}
	if ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady); ready != nil {
		p.Ready, p.NotReady = ready.Status == metav1.ConditionTrue, ready.Message
	}
	for _, virtualNode := range slices.SortedFunc(slices.Values(virtualNodes), byName) {
		if isSlice(pc, virtualNode.Name) { // The broker may be configured to ignore some of them.
			maps.Copy(p.Labels, labelsOf(virtualNode))
			if classes := storageClassesOf(virtualNode); len(classes) > 0 {
				p.StorageClasses = p.StorageClasses.Union(classes)
			}
		}
	}
	p.Prices = price.Of(&pc.Spec, p.Labels)
	for _, m := range namespaceMaps {
		for namespace, remote := range m.Spec.DesiredMapping {
			if why := missing(remote, m.Status.CurrentMapping[namespace].Phase); why != "" {
				if p.Missing == nil {
					p.Missing = map[string]string{}
				}
				p.Missing[namespace] = why
			}
		}
		for namespace, at := range m.Status.CurrentMapping {
			if at.Phase == offloadingv1beta1.MappingAccepted &&
				namespacemap.Asked(m.Spec.DesiredMapping, m.Namespace, namespace, at.RemoteNamespace) {
				p.Namespaces.Insert(namespace)
			}
		}
	}
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		p.Slices = append(p.Slices, scheduler.Slice{
			VirtualNode: vn.Name, Granted: resources.RoundDown(vn.Resources.Granted), Filter: sliceFilter(vn),
			Closed: closureOf(vn), Reserved: reservationOf(vn),
		})
	}
	return p
}

// missing returns why a provider does not have a namespace that was to be offloaded, "" if that is not known. The names of
// two hops add up: a namespace of a consumer has the ids of the consumer and of the broker at its end.
func missing(remote string, phase offloadingv1beta1.MappingPhase) string {
	switch {
	case len(remote) > content.DNS1123LabelMaxLength:
		return fmt.Sprintf("its name there would have %d characters, and may have %d", len(remote), content.DNS1123LabelMaxLength)
	case phase == offloadingv1beta1.MappingCreationLoopBackOff:
		return "the provider cannot make it"
	}
	return ""
}

// maxLabels is the number of labels of a VirtualNode that are read.
const maxLabels = 200

// labelsOf returns the labels of a VirtualNode that the Node of Liqo's virtual kubelet could have, in order. The
// provider writes them (status.nodeLabels of a ResourceSlice), in any length and with any characters, and the catalog
// shows them to all callers.
func labelsOf(virtualNode *offloadingv1beta1.VirtualNode) map[string]string {
	labels := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(virtualNode.Spec.Labels)) {
		value := virtualNode.Spec.Labels[key]
		if len(labels) < maxLabels && len(content.IsLabelKey(key)) == 0 && len(content.IsLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	return labels
}

// maxStorageClasses is the number of storage classes of a VirtualNode that are read.
const maxStorageClasses = 100

// storageClassesOf returns the names of the storage classes that the provider offers with a VirtualNode.
func storageClassesOf(virtualNode *offloadingv1beta1.VirtualNode) sets.Set[string] {
	classes := sets.New[string]()
	for _, class := range virtualNode.Spec.StorageClasses[:min(len(virtualNode.Spec.StorageClasses), maxStorageClasses)] {
		if len(content.IsDNS1123Subdomain(class.StorageClassName)) == 0 {
			classes.Insert(class.StorageClassName)
		}
	}
	return classes
}

func byName(a, b *offloadingv1beta1.VirtualNode) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
}

// sliceFilter returns the reason why a slice takes no pod. An unknown reason is from a newer broker.
func sliceFilter(vn *v1alpha1.VirtualNodeStatus) verdict.Filter {
	filter, known := verdict.ParseSliceFilter(vn.Reason)
	if !known || filter == verdict.Passed && !vn.Ready {
		return verdict.NotReady
	}
	if filter == verdict.StartsNothing {
		return verdict.Passed // The closure decides: there are trials.
	}
	return filter
}

// closureOf returns the closure of a slice that takes no pods although it is ready; nil if it takes pods.
func closureOf(vn *v1alpha1.VirtualNodeStatus) *scheduler.Closure {
	if vn.Closed == nil {
		return nil
	}
	return &scheduler.Closure{Owners: vn.Closed.Owners}
}

// reservationOf returns the reservation of a slice; nil if there is none.
func reservationOf(vn *v1alpha1.VirtualNodeStatus) *scheduler.Reservation {
	if vn.Reserved == nil {
		return nil
	}
	return &scheduler.Reservation{UID: vn.Reserved.UID, Requests: resources.RoundUp(vn.Reserved.Requests)}
}

func isSlice(pc *v1alpha1.ProviderCluster, virtualNode string) bool {
	return slices.ContainsFunc(pc.Status.VirtualNodes, func(vn v1alpha1.VirtualNodeStatus) bool { return vn.Name == virtualNode })
}
