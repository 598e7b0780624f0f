package offloading

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// action is a change of the NamespaceOffloading of a namespace.
type action int

const (
	leave action = iota
	create
	update
	remove
)

// String is the value of the metric's label.
func (a action) String() string {
	return [...]string{leave: "left", create: "created", update: "changed_back", remove: "removed"}[a]
}

// ours reports whether the broker made a NamespaceOffloading, and its label was not removed since.
func ours(offloading *offloadingv1beta1.NamespaceOffloading) bool {
	return offloading.Labels[consts.K8sAppManagedByKey] == v1alpha1.ManagedByBroker
}

// plan decides about the NamespaceOffloading of a namespace; existing is the present one or nil. It returns the object
// to write, for create and update. selected is true if the consumer's namespaces are offloaded.
func plan(namespace *corev1.Namespace, existing *offloadingv1beta1.NamespaceOffloading, selected bool,
	mapping offloadingv1beta1.NamespaceMappingStrategyType,
) (action, *offloadingv1beta1.NamespaceOffloading) {
	origin := placement.ConsumerOf(namespace)
	switch {
	case namespace.DeletionTimestamp != nil:
		return leave, nil // Everything in it is deleted with it.
	case existing != nil && (!ours(existing) || existing.DeletionTimestamp != nil):
		return leave, nil
	case origin == "" && existing != nil:
		return remove, nil
	case origin == "" || !selected:
		// A consumer that is no longer selected keeps its NamespaceOffloadings: removing one would delete its running
		// pods.
		return leave, nil
	case existing == nil:
		return create, wanted(namespace, origin, mapping)
	}
	fresh := wanted(namespace, origin, mapping)
	// Liqo's webhook rejects another mapping once the object exists; its finalizers are Liqo's.
	fresh.Spec.NamespaceMappingStrategy = existing.Spec.NamespaceMappingStrategy
	fresh.Spec.RemoteNamespaceName = existing.Spec.RemoteNamespaceName
	if equality.Semantic.DeepEqual(existing.Spec, fresh.Spec) &&
		equality.Semantic.DeepEqual(existing.OwnerReferences, fresh.OwnerReferences) {
		return leave, nil
	}
	updated := existing.DeepCopy()
	updated.Spec, updated.OwnerReferences = fresh.Spec, fresh.OwnerReferences
	return update, updated
}

// wanted is the NamespaceOffloading of a namespace from origin.
//
// The selector is matched against every VirtualNode, and Liqo's webhook puts the same terms on the pods as node
// affinity, so they must fit the broker's Node too: it bears no cluster id, which NotIn accepts. The strategy is Remote
// because the consumer's pods are for the providers: none of them runs in this cluster.
func wanted(namespace *corev1.Namespace, origin string, mapping offloadingv1beta1.NamespaceMappingStrategyType,
) *offloadingv1beta1.NamespaceOffloading {
	return &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{
			Name: consts.DefaultNamespaceOffloadingName, Namespace: namespace.Name,
			Labels: map[string]string{consts.K8sAppManagedByKey: v1alpha1.ManagedByBroker},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID,
			}},
		},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: mapping,
			PodOffloadingStrategy:    offloadingv1beta1.RemotePodOffloadingStrategyType,
			ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: consts.RemoteClusterID, Operator: corev1.NodeSelectorOpNotIn, Values: []string{origin},
				}},
			}}},
		},
	}
}
