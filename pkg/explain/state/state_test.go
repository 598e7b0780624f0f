package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func set(s *State, object client.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		s.SetNamespace(o)
	case *v1alpha1.ProviderCluster:
		s.SetProvider(o)
	case *offloadingv1beta1.VirtualNode:
		s.SetVirtualNode(o)
	case *offloadingv1beta1.NamespaceMap:
		s.SetNamespaceMap(o)
	case *corev1.Pod:
		s.SetPod(o)
	}
}

func remove(s *State, object client.Object) {
	name := client.ObjectKeyFromObject(object)
	switch object.(type) {
	case *corev1.Namespace:
		s.RemoveNamespace(name)
	case *v1alpha1.ProviderCluster:
		s.RemoveProvider(name)
	case *offloadingv1beta1.VirtualNode:
		s.RemoveVirtualNode(name)
	case *offloadingv1beta1.NamespaceMap:
		s.RemoveNamespaceMap(name)
	case *corev1.Pod:
		s.RemovePod(name)
	}
}

// drawObject draws one of a few objects, so that most are drawn again in another state.
func drawObject(t *rapid.T) client.Object {
	provider := func(label string) string { return rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(t, label) }
	name := provider("name")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + name}}
		if other := provider("tenant"); rapid.Bool().Draw(t, "is a tenant namespace") {
			namespace.Labels = map[string]string{"liqo.io/remote-cluster-id": other, "liqo.io/tenant-namespace": "true"}
		}
		return namespace
	case 1:
		return drawProvider(t, name)
	case 2:
		return &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "virtual node")},
			Spec: offloadingv1beta1.VirtualNodeSpec{
				ClusterID: liqov1beta1.ClusterID(name), Labels: map[string]string{"region": provider("region")},
			},
		}
	case 3:
		return &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-" + provider("in"), Name: "map", Labels: map[string]string{"liqo.io/remote-cluster-id": name},
			},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": ""}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"ns": {Phase: rapid.SampledFrom([]offloadingv1beta1.MappingPhase{
					offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingCreationLoopBackOff,
				}).Draw(t, "mapping")},
			}},
		}
	}
	return drawPod(t, name)
}

func drawProvider(t *rapid.T, name string) *v1alpha1.ProviderCluster {
	status := func(label string) metav1.ConditionStatus {
		return rapid.SampledFrom([]metav1.ConditionStatus{"True", "True", "False", "Unknown"}).Draw(t, label)
	}
	share := func(label string) string { return rapid.SampledFrom([]string{"", "1.0000", "0.5"}).Draw(t, label) }
	pc := &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProviderClusterSpec{
			Enabled:  rapid.Ptr(rapid.Bool(), true).Draw(t, "enabled"),
			Cordoned: rapid.IntRange(0, 4).Draw(t, "cordoned") == 0, Drain: rapid.IntRange(0, 4).Draw(t, "drain") == 0,
			Attributes: map[string]string{"price": rapid.SampledFrom([]string{"1", "9", "much"}).Draw(t, "price")},
		},
		Status: v1alpha1.ProviderClusterStatus{
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ProviderReady, Status: status("ready")}, {Type: v1alpha1.ProviderClean, Status: status("clean")},
			},
			KPIs: v1alpha1.KPIs{
				Uptime:              v1alpha1.Uptime{LastDay: share("last day")},
				LatencyMilliseconds: rapid.Ptr(rapid.Int64Range(1, 90), true).Draw(t, "latency"),
				Started:             rapid.Int64Range(0, 9).Draw(t, "started"), Failed: rapid.Int64Range(0, 2).Draw(t, "failed"),
			},
		},
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "slices") {
		pc.Status.VirtualNodes = append(pc.Status.VirtualNodes, v1alpha1.VirtualNodeStatus{
			Name: fmt.Sprint(name, "-", n+1), Ready: rapid.Bool().Draw(t, "slice ready"),
			Reason: rapid.SampledFrom([]string{"", "", "VirtualNode terminating"}).Draw(t, "reason"),
			Resources: v1alpha1.Resources{Granted: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(rapid.SampledFrom([]string{"2", "4"}).Draw(t, "cpu")),
				corev1.ResourceMemory: resource.MustParse("8Gi"),
			}},
		})
	}
	return pc
}

func drawPod(t *rapid.T, at string) *corev1.Pod {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name + rapid.SampledFrom([]string{"", " again"}).Draw(t, "uid")),
		},
		Spec: podSpec("1"),
	}
	pod.Spec.NodeName = rapid.SampledFrom([]string{"broker", "broker", "broker", "elsewhere"}).Draw(t, "node")
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded}).Draw(t, "phase")
	switch rapid.IntRange(0, 3).Draw(t, "assigned") {
	case 0:
	case 1:
		pod.Annotations = map[string]string{v1alpha1.MovingFromAnnotation: at + "-1", v1alpha1.MovingFromProviderAnnotation: at}
	default:
		pod.Labels = map[string]string{v1alpha1.VirtualNodeLabel: at + "-1", v1alpha1.ProviderLabel: at, "app": "web"}
	}
	return pod
}

func podSpec(cpu string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
	}}}}
}

// drawQuestion draws a pod that does not exist, and its policy.
func drawQuestion(t *rapid.T) (*scheduler.Pod, *scheduler.Policy) {
	spec := podSpec(rapid.SampledFrom([]string{"1", "3"}).Draw(t, "requests"))
	pod := &scheduler.Pod{
		Namespace: "ns", Name: "new", App: rapid.SampledFrom([]string{"", "ns/app=web"}).Draw(t, "app"),
		Consumer: rapid.SampledFrom([]string{"", "p1"}).Draw(t, "consumer"), Requests: resources.PodRequests(&spec),
	}
	if rapid.Bool().Draw(t, "without policy") {
		return pod, nil
	}
	policy := &scheduler.Policy{Name: "policy"}
	for _, plugin := range score.Plugins() {
		if rapid.Bool().Draw(t, plugin) {
			policy.Weights = append(policy.Weights, score.Weight{Plugin: plugin, Weight: 1})
		}
	}
	if rapid.Bool().Draw(t, "named") {
		policy.Named = sets.New("p1", "p2")
	}
	return pod, policy
}

// verdicts are the verdicts on all providers, and the decision.
func verdicts(d *scheduler.Decision) []string {
	all := []string{d.Prospect()}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		text := fmt.Sprint(v.Provider, " ", v.VirtualNode, " ", v.Total)
		if v.Filter != verdict.Passed {
			text += " " + v.Reason()
		} else {
			text += fmt.Sprint(" ", v.Contributions())
		}
		all = append(all, text)
	}
	return all
}

// decoded is an object as another client of the API server reads it.
func decoded(t require.TestingT, o client.Object) client.Object {
	text, err := json.Marshal(o)
	require.NoError(t, err)
	read, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	require.True(t, ok)
	require.NoError(t, json.Unmarshal(text, read))
	return read
}

// requireSame requires that a state decides as another one that is filled with the same objects, as another client
// reads them, in another order.
func requireSame(t *rapid.T, s *State, objects map[string]client.Object) {
	other := New("broker")
	for _, key := range rapid.Permutation(slices.Sorted(maps.Keys(objects))).Draw(t, "order") {
		set(other, decoded(t, objects[key]))
	}
	pod, policy := drawQuestion(t)
	got, providers := s.Decide(noon, pod, policy)
	want, wantProviders := other.Decide(noon, pod, policy)
	require.Equal(t, verdicts(&want), verdicts(&got))
	equalities := equality.Semantic.Copy() // It has no comparison of times.
	require.NoError(t, equalities.AddFunc(time.Time.Equal))
	require.True(t, equalities.DeepEqual(wantProviders, providers), "%v\n%v", wantProviders, providers)
	for _, p := range providers {
		for _, slice := range p.Slices {
			at := scheduler.Place{Provider: p.ID, VirtualNode: slice.VirtualNode}
			assigned, pods := s.scheduler.Assigned(at)
			wantAssigned, wantPods := other.scheduler.Assigned(at)
			require.Equal(t, wantAssigned, assigned)
			require.Equal(t, wantPods, pods)
		}
	}
}

// For every sequence of changes and decisions.
func TestAStateDecidesAsAnotherOneOfTheSameObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New("broker")
		objects := map[string]client.Object{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				o := drawObject(t)
				objects[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = o
				set(s, o)
			},
			"remove": func(t *rapid.T) {
				if len(objects) == 0 {
					t.Skip("there is no object")
				}
				key := rapid.SampledFrom(slices.Sorted(maps.Keys(objects))).Draw(t, "removed")
				remove(s, objects[key])
				delete(objects, key)
			},
			"decide about a pod that exists": func(t *rapid.T) {
				pod, policy := drawQuestion(t)
				pod.Name = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "decided")
				without := maps.Clone(objects)
				maps.DeleteFunc(without, func(key string, o client.Object) bool {
					_, isPod := o.(*corev1.Pod)
					return isPod && strings.HasSuffix(key, "/"+pod.Name)
				})
				other := New("broker")
				for _, o := range without {
					set(other, o)
				}
				got, _ := s.Decide(noon, pod, policy)
				want, _ := other.Decide(noon, pod, policy)
				require.Equal(t, verdicts(&want), verdicts(&got), "its own requests do not count")
			},
			"": func(t *rapid.T) { requireSame(t, s, objects) },
		})
	})
}

func TestReadHasAllThatAnAPIServerHas(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		objects := map[string]client.Object{}
		for _, o := range rapid.SliceOfN(rapid.Custom(drawObject), 0, 12).Draw(t, "objects") {
			objects[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = o
		}
		build := fake.NewClientBuilder().WithScheme(scheme)
		for _, o := range objects {
			build.WithObjects(o.DeepCopyObject().(client.Object))
		}
		s, err := Read(t.Context(), build.Build(), "broker")
		require.NoError(t, err)
		requireSame(t, s, objects)
	})
}
