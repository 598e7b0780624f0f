package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// tell says to beliefs that an object is there now.
func tell(b *Beliefs, object client.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		b.setNamespace(o)
	case *v1alpha1.ProviderCluster:
		b.setProvider(o)
	case *offloadingv1beta1.VirtualNode:
		b.setVirtualNode(o)
	case *offloadingv1beta1.NamespaceMap:
		b.setNamespaceMap(o)
	case *corev1.Pod:
		b.setPod(o)
	}
}

// untell says to beliefs that an object is gone.
func untell(b *Beliefs, object client.Object) {
	name := client.ObjectKeyFromObject(object)
	switch object.(type) {
	case *corev1.Namespace:
		b.removeNamespace(name)
	case *v1alpha1.ProviderCluster:
		b.removeProvider(name)
	case *offloadingv1beta1.VirtualNode:
		b.removeVirtualNode(name)
	case *offloadingv1beta1.NamespaceMap:
		b.removeNamespaceMap(name)
	case *corev1.Pod:
		b.removePod(name)
	}
}

// anObject is one of few, so that most are met again in another state.
func anObject(t *rapid.T) client.Object {
	provider := func(label string) string { return rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, label) }
	name := provider("name")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		namespace := tenant(name)
		if other := provider("tenant"); rapid.Bool().Draw(t, "nobody's") {
			namespace.Labels = nil
		} else {
			namespace.Labels["liqo.io/remote-cluster-id"] = other
		}
		return namespace
	case 1:
		return shown(name, rapid.SampledFrom([]string{"2", "4"}).Draw(t, "cpu"), rapid.Bool().Draw(t, "ready"), nil)
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
				Namespace: tenant(provider("in")).Name, Name: "map", Labels: map[string]string{"liqo.io/remote-cluster-id": name},
			},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"ns": {Phase: offloadingv1beta1.MappingAccepted},
			}},
		}
	}
	pod := cpuPod(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod"), "1")
	pod.UID = types.UID(pod.Name + rapid.SampledFrom([]string{"", " again"}).Draw(t, "uid"))
	pod.Spec.NodeName = rapid.SampledFrom([]string{"broker", "broker", "broker", "elsewhere"}).Draw(t, "node")
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded}).Draw(t, "phase")
	if rapid.Bool().Draw(t, "assigned") {
		pod.Labels = map[string]string{v1alpha1.VirtualNodeLabel: name + "-1", v1alpha1.ProviderLabel: name}
	}
	return pod
}

// believed is what beliefs say of all providers, and of a pod that is not there.
func believed(b *Beliefs) (providers []scheduler.Provider, assigned []string, verdicts []string) {
	b.decide(func(state *scheduler.State) {
		providers = state.Providers()
		for _, virtualNode := range []string{"p1-1", "p2-1"} {
			resources, pods := state.Assigned(virtualNode)
			assigned = append(assigned, fmt.Sprint(virtualNode, resources, pods))
		}
		var d scheduler.Decision
		pod := &scheduler.Pod{Namespace: "ns", Requests: scheduler.PodRequests(&cpuPod("new", "1").Spec)}
		state.Decide(time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC), pod, nil, &d)
		for i := range d.Verdicts {
			v := &d.Verdicts[i]
			verdicts = append(verdicts, fmt.Sprint(v.Provider, v.VirtualNode, v.Filter, v.Reason(), v.Total))
		}
	})
	return providers, assigned, verdicts
}

// Whatever comes in whatever order, and however often a pod is explained meanwhile: what is believed in the end is what
// somebody believes who reads all that is there.
func TestBeliefsAreThoseOfAFreshReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBeliefs("broker")
		there := map[string]client.Object{}
		compare := func() {
			fresh := NewBeliefs("broker")
			for _, key := range slices.Sorted(maps.Keys(there)) {
				tell(fresh, there[key])
			}
			providers, assigned, verdicts := believed(b)
			wantProviders, wantAssigned, wantVerdicts := believed(fresh)
			require.Equal(t, wantProviders, providers)
			require.Equal(t, wantAssigned, assigned)
			require.Equal(t, wantVerdicts, verdicts)
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				o := anObject(t)
				there[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = o
				tell(b, o)
			},
			"remove": func(t *rapid.T) {
				if len(there) == 0 {
					t.Skip("nothing is there")
				}
				key := rapid.SampledFrom(slices.Sorted(maps.Keys(there))).Draw(t, "removed")
				untell(b, there[key])
				delete(there, key)
			},
			"explain": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod")
				b.decideWithout(types.NamespacedName{Namespace: "ns", Name: name}, func(state *scheduler.State) {
					pods := 0
					for _, virtualNode := range []string{"p1-1", "p2-1"} {
						_, n := state.Assigned(virtualNode)
						pods += n
					}
					counted := 0
					for key, o := range there {
						pod, ok := o.(*corev1.Pod)
						if ok && !strings.HasSuffix(key, "/"+name) && pod.Spec.NodeName == "broker" &&
							pod.Labels != nil && pod.Status.Phase == corev1.PodRunning {
							counted++
						}
					}
					require.Equal(t, counted, pods, "all pods but the one that is explained")
				})
			},
			"": func(*rapid.T) { compare() },
		})
	})
}
