package view

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

const node = "liqo-broker"

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// fed is a View whose informers are the test itself.
type fed struct {
	*View
	handlers map[reflect.Type]toolscache.ResourceEventHandler
}

func newFed(cfg Config) *fed {
	cfg.Node = node
	f := &fed{View: New(nil, cfg), handlers: map[reflect.Type]toolscache.ResourceEventHandler{}}
	for _, s := range f.sources() {
		f.handlers[reflect.TypeOf(s.Kind)] = s.Handler
	}
	return f
}

// sees passes new and changed objects to the view.
func (f *fed) sees(objects ...client.Object) {
	for _, o := range objects {
		f.handlers[reflect.TypeOf(o)].OnUpdate(nil, o)
	}
}

func (f *fed) misses(objects ...client.Object) {
	for _, o := range objects {
		f.handlers[reflect.TypeOf(o)].OnDelete(o)
	}
}

// has reports whether the view has a pod.
func (f *fed) has(namespace, pod string) bool {
	return f.pods.Get(types.NamespacedName{Namespace: namespace, Name: pod}) != nil
}

// shownProvider is a provider with these VirtualNodes, as the view shows it.
func shownProvider(pc *v1alpha1.ProviderCluster, virtualNodes ...*offloadingv1beta1.VirtualNode) api.Provider {
	translated := placement.Provider(pc, virtualNodes, nil)
	return api.ProviderOf(time.Now(), pc, &translated)
}

func podIn(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(noon),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// assigned assigns a pod by a decision with that score.
func assigned(provider string, score int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[v1alpha1.VirtualNodeLabel], p.Labels[v1alpha1.ProviderLabel] = provider+"-slice", provider
		p.Annotations[v1alpha1.AssignedAtAnnotation] = noon.Add(time.Second).Format(time.RFC3339Nano)
		p.Annotations[v1alpha1.DecisionAnnotation] = fmt.Sprintf("%s %d: price 29, free 26", provider, score)
		p.Status.Phase = corev1.PodRunning
	}
}

func leaving(virtualNode string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[v1alpha1.MovingFromAnnotation] = virtualNode
		p.Annotations[v1alpha1.DecisionAnnotation] = "moving: " + virtualNode + " is drained"
	}
}

func unassignable(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Message: message,
		})
	}
}

func in(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// namespaceOf is a namespace that a cluster sent; "" is none.
func namespaceOf(name, cluster string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if cluster != "" {
		n.Labels[consts.RemoteClusterID] = cluster
		n.Annotations = map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + cluster}
	}
	return n
}

func tenantNamespaceOf(name, cluster string) *corev1.Namespace {
	n := namespaceOf(name, cluster)
	n.Labels[consts.TenantNamespaceLabel] = "true"
	return n
}

func cpus(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

func cluster(id string, change ...func(*v1alpha1.ProviderCluster)) *v1alpha1.ProviderCluster {
	amounts := v1alpha1.Resources{Granted: cpus("8"), Assigned: cpus("1500m"), Free: cpus("6500m")}
	pc := &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: metav1.NewTime(noon)},
		Spec:       v1alpha1.ProviderClusterSpec{Attributes: map[string]string{}},
		Status: v1alpha1.ProviderClusterStatus{
			Pods: 3, Resources: amounts,
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-slice", Ready: true, Pods: 3, Resources: amounts}},
			KPIs:         v1alpha1.KPIs{LatencyMilliseconds: ptr.To[int64](4)},
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.NewTime(noon),
			}},
		},
	}
	for _, f := range change {
		f(pc)
	}
	return pc
}

func virtualNodeOf(name, provider string, labels map[string]string) *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: name},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(provider), Labels: labels},
	}
}

func policyFor(name string, consumers ...string) *v1alpha1.PlacementPolicy {
	return &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementPolicySpec{Consumers: consumers},
	}
}

func selectionOf(consumer string, mode v1alpha1.SelectionMode, providers ...string) *v1alpha1.PlacementPolicy {
	p := policyFor("selection-"+consumer, consumer)
	p.Spec.Selection = &v1alpha1.Selection{Mode: mode, Providers: providers}
	return p
}
