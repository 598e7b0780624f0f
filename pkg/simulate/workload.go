package simulate

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// policyList is the client.Reader of the policies of a scenario. Pods of a scenario have no claims, so nothing else is
// read.
type policyList struct {
	client.Reader
	items []v1alpha1.PlacementPolicy
}

// List implements client.Reader.
func (l *policyList) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, is := into.(*v1alpha1.PlacementPolicyList)
	if !is {
		return fmt.Errorf("a scenario has no %T", into)
	}
	list.Items = append([]v1alpha1.PlacementPolicy(nil), l.items...)
	return nil
}

func newPolicies(sc *Scenario, rules placement.Rules) *placement.Policies {
	return &placement.Policies{Client: &policyList{items: sc.Policies}, Programs: cel.NewCache(programs), Defaults: rules}
}

// workload is a source of equal pods. They have the same criteria, which are read once.
type workload struct {
	spec      *Workload
	consumer  *Consumer
	namespace *corev1.Namespace
	template  *corev1.Pod
	criteria  placement.Criteria
	// invalid is why the pods wait: their criteria are invalid.
	invalid string
	stream  *stream
	made    int
}

func newWorkload(ctx context.Context, policies *placement.Policies, seed uint64, c *Consumer, spec *Workload) (*workload, error) {
	w := &workload{
		spec: spec, consumer: c, namespace: namespaceOf(c, spec), template: templateOf(c, spec),
		stream: newStream(seed, c.ID, spec.Name, &spec.Arrivals),
	}
	var err error
	w.criteria, err = policies.CriteriaOf(ctx, w.template, w.namespace)
	if errors.Is(err, placement.ErrInvalid) {
		w.invalid = err.Error()
		return w, nil
	}
	return w, err
}

// namespaceOf returns a namespace as Liqo makes it for the pods of a consumer.
func namespaceOf(c *Consumer, spec *Workload) *corev1.Namespace {
	name := spec.namespaceOf(c)
	labels := map[string]string{corev1.LabelMetadataName: name, consts.RemoteClusterID: c.ID}
	maps.Copy(labels, c.Labels)
	maps.Copy(labels, spec.NamespaceLabels)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: labels,
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant-" + c.ID + "/" + c.ID},
	}}
}

func templateOf(c *Consumer, spec *Workload) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: spec.namespaceOf(c), Labels: spec.Labels, Annotations: spec.Annotations},
		Spec: corev1.PodSpec{
			NodeName: nodeName, NodeSelector: spec.NodeSelector, Affinity: spec.Affinity,
			TopologySpreadConstraints: spec.TopologySpreadConstraints,
			Containers: []corev1.Container{
				{Name: "main", Resources: corev1.ResourceRequirements{Requests: spec.Requests}},
			},
		},
	}
}

// pod returns the next pod of a workload, as Liqo makes it from a ShadowPod.
func (w *workload) pod(now metav1.Time) *corev1.Pod {
	w.made++
	object := *w.template
	object.Name = fmt.Sprintf("%s-%d", w.spec.Name, w.made)
	object.UID = types.UID(object.Namespace + "/" + object.Name)
	object.CreationTimestamp = now
	object.OwnerReferences = []metav1.OwnerReference{
		{Kind: "ShadowPod", Name: object.Name, UID: "shadow/" + object.UID, Controller: ptr.To(true)},
	}
	return &object
}
