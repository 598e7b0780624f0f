package simulate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// ownPods is the id of the consumer of the pods of the broker's own cluster.
const ownPods = "this-cluster"

// FromCluster returns the base of scenarios that begin with the present state of a broker's cluster: its providers,
// policies, and the pods of the broker's node, which run until the end. The error is the API's.
func FromCluster(ctx context.Context, c client.Reader, node string, now time.Time) (*Scenario, error) {
	var providers v1alpha1.ProviderClusterList
	var policies v1alpha1.PlacementPolicyList
	var virtualNodes offloadingv1beta1.VirtualNodeList
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&providers, &policies, &virtualNodes, &namespaces} {
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
	}
	if err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, err
	}
	sc := &Scenario{Start: metav1.NewTime(now.UTC().Truncate(time.Second)), Policies: policies.Items}
	for i := range providers.Items {
		sc.addProvider(&providers.Items[i], virtualNodes.Items)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		of := slices.IndexFunc(namespaces.Items, func(n corev1.Namespace) bool { return n.Name == pod.Namespace })
		if of >= 0 && !placement.Terminal(pod) && pod.DeletionTimestamp == nil {
			sc.addPod(pod, &namespaces.Items[of])
		}
	}
	return sc, nil
}

// addProvider adds a provider that has virtual nodes.
func (sc *Scenario) addProvider(pc *v1alpha1.ProviderCluster, virtualNodes []offloadingv1beta1.VirtualNode) {
	if len(pc.Status.VirtualNodes) == 0 {
		return
	}
	of := pc.DeepCopy()
	of.Labels = nil
	for i := range virtualNodes {
		if string(virtualNodes[i].Spec.ClusterID) == pc.Name {
			of.Labels = virtualNodes[i].Spec.Labels
		}
	}
	sc.ProviderClusters = append(sc.ProviderClusters, *of)
}

// addPod adds a workload with one pod.
func (sc *Scenario) addPod(pod *corev1.Pod, namespace *corev1.Namespace) {
	id := placement.ConsumerOf(namespace)
	if id == "" {
		id = ownPods
	}
	w := Workload{
		Name: pod.Name, Namespace: pod.Namespace, NamespaceLabels: namespace.Labels, Arrivals: Arrivals{Initial: 1},
		Lifetime: Distribution{Mean: metav1.Duration{Duration: maxDuration}}, Requests: resources.PodRequests(&pod.Spec).List(),
		Labels: map[string]string{}, Annotations: map[string]string{}, NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity,
		TopologySpreadConstraints: pod.Spec.TopologySpreadConstraints,
	}
	delete(w.Requests, corev1.ResourcePods) // Each pod counts as one.
	for key, value := range pod.Labels {
		if key != v1alpha1.ProviderLabel && key != v1alpha1.VirtualNodeLabel {
			w.Labels[key] = value
		}
	}
	for _, key := range []string{
		v1alpha1.PolicyAnnotation, v1alpha1.FilterAnnotation, v1alpha1.FailoverAnnotation, v1alpha1.ConstraintsAnnotation,
	} {
		if value, has := pod.Annotations[key]; has {
			w.Annotations[key] = value
		}
	}
	at := placement.AssignedTo(pod)
	if slices.ContainsFunc(sc.ProviderClusters, func(pc v1alpha1.ProviderCluster) bool { return pc.Name == at.Provider }) {
		w.AssignedTo = &AssignedTo{Provider: at.Provider, VirtualNode: at.VirtualNode}
	}
	sc.consumer(id).Workloads = append(sc.consumer(id).Workloads, w)
}

// consumer returns the consumer with an id, a new one if there is none.
func (sc *Scenario) consumer(id string) *Consumer {
	for i := range sc.Consumers {
		if sc.Consumers[i].ID == id {
			return &sc.Consumers[i]
		}
	}
	sc.Consumers = append(sc.Consumers, Consumer{ID: id})
	return &sc.Consumers[len(sc.Consumers)-1]
}

// beginWith has a scenario begin with the state of a base.
func (sc *Scenario) beginWith(base *Scenario) {
	if base == nil {
		return
	}
	if sc.Start.IsZero() {
		sc.Start = base.Start
	}
	if len(sc.Providers)+len(sc.ProviderClusters) == 0 {
		sc.ProviderClusters = base.ProviderClusters
	}
	if sc.Policies == nil {
		sc.Policies = base.Policies
	}
	for i := range base.Consumers {
		of := sc.consumer(base.Consumers[i].ID)
		of.Workloads = append(slices.Clone(base.Consumers[i].Workloads), of.Workloads...)
	}
}
