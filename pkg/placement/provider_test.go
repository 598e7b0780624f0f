package placement

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func TestProvider(t *testing.T) {
	// The fields of every case.
	plain := func(change func(*scheduler.Provider)) scheduler.Provider {
		p := scheduler.Provider{
			ID: "p1", Enabled: true, Ready: true, Labels: map[string]string{}, Namespaces: sets.New[string](), KPIs: kpi.Values{},
			Slices: []scheduler.Slice{{VirtualNode: "v1", Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
		}
		change(&p)
		return p
	}
	virtualNode := func(labels map[string]string) *offloadingv1beta1.VirtualNode {
		return &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Name: "v1"}, Spec: offloadingv1beta1.VirtualNodeSpec{Labels: labels},
		}
	}
	for name, tc := range map[string]struct {
		change        func(*v1alpha1.ProviderCluster)
		virtualNodes  []*offloadingv1beta1.VirtualNode
		namespaceMaps []*offloadingv1beta1.NamespaceMap
		want          func(*scheduler.Provider)
	}{
		"without a decision of an administrator it is enabled": {},
		"the administrator's decisions": {
			change: func(pc *v1alpha1.ProviderCluster) {
				pc.Spec = v1alpha1.ProviderClusterSpec{
					Enabled: ptr.To(false), Cordoned: true, Drain: true, Attributes: map[string]string{"price": "1"},
				}
			},
			want: func(p *scheduler.Provider) {
				p.Enabled, p.Cordoned, p.Draining, p.Attributes = false, true, true, map[string]string{"price": "1"}
				p.Prices = price.Lists{{PerHour: map[corev1.ResourceName]float64{corev1.ResourceCPU: 1}}}
			},
		},
		"not ready, with the reason": {
			change: func(pc *v1alpha1.ProviderCluster) {
				pc.Status.Conditions[0].Status, pc.Status.Conditions[0].Message = metav1.ConditionFalse, "Reachable: NoAnswer"
			},
			want: func(p *scheduler.Provider) { p.Ready, p.NotReady = false, "Reachable: NoAnswer" },
		},
		"unknown is not ready": {
			change: func(pc *v1alpha1.ProviderCluster) { pc.Status.Conditions[0].Status = metav1.ConditionUnknown },
			want:   func(p *scheduler.Provider) { p.Ready = false },
		},
		"nor is a provider that was never probed": {
			change: func(pc *v1alpha1.ProviderCluster) { pc.Status.Conditions = nil },
			want:   func(p *scheduler.Provider) { p.Ready = false },
		},
		"a provider that may still run pods that were moved away is recovering": {
			change: func(pc *v1alpha1.ProviderCluster) {
				pc.Status.Conditions = append(pc.Status.Conditions,
					metav1.Condition{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse})
			},
			want: func(p *scheduler.Provider) { p.Recovering = true },
		},
		"no labels of a VirtualNode that the broker does not use": {
			virtualNodes: []*offloadingv1beta1.VirtualNode{{
				ObjectMeta: metav1.ObjectMeta{Name: "v2"},
				Spec:       offloadingv1beta1.VirtualNodeSpec{Labels: map[string]string{"region": "eu"}},
			}},
		},
		"no labels that a Node could not have": {
			virtualNodes: []*offloadingv1beta1.VirtualNode{virtualNode(map[string]string{
				"region": "eu", "long": strings.Repeat("x", 64), "control": "a\u202eb\x1b[2J", "not a key": "x", "empty": "",
			})},
			want: func(p *scheduler.Provider) { p.Labels = map[string]string{"region": "eu", "empty": ""} },
		},
		"the labels of its VirtualNodes": {
			virtualNodes: []*offloadingv1beta1.VirtualNode{
				virtualNode(map[string]string{"region": "eu", "disk": "fast"}), virtualNode(map[string]string{"region": "us"}),
			},
			want: func(p *scheduler.Provider) { p.Labels = map[string]string{"region": "us", "disk": "fast"} },
		},
		"the namespaces that are offloaded there, none of which is pending": {
			namespaceMaps: []*offloadingv1beta1.NamespaceMap{{
				Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"a": "a-p", "b": "b-p"}},
				Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
					"a":           {RemoteNamespace: "a-p", Phase: offloadingv1beta1.MappingAccepted},
					"b":           {RemoteNamespace: "b-p", Phase: offloadingv1beta1.MappingCreationLoopBackOff},
					"kube-system": {RemoteNamespace: "x", Phase: offloadingv1beta1.MappingAccepted}, // Not desired.
				}},
			}},
			want: func(p *scheduler.Provider) {
				p.Namespaces, p.Missing = sets.New("a"), map[string]string{"b": "the provider cannot make it"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "p1"}}
			pc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}}
			pc.Status.VirtualNodes = []v1alpha1.VirtualNodeStatus{{Name: "v1", Ready: true, Resources: v1alpha1.Resources{
				Granted: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			}}}
			if tc.change != nil {
				tc.change(pc)
			}
			if tc.want == nil {
				tc.want = func(*scheduler.Provider) {}
			}
			require.Equal(t, plain(tc.want), Provider(pc, tc.virtualNodes, tc.namespaceMaps))
		})
	}
}

// The names of two hops add up.
func TestWhyANamespaceIsMissing(t *testing.T) {
	long := strings.Repeat("n", 64)
	m := &offloadingv1beta1.NamespaceMap{
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{
			"long": long, "fits": long[:63], "failed": "failed", "made": "made",
		}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"failed": {RemoteNamespace: "failed", Phase: offloadingv1beta1.MappingCreationLoopBackOff},
			"made":   {RemoteNamespace: "made", Phase: offloadingv1beta1.MappingAccepted},
		}},
	}
	p := Provider(&v1alpha1.ProviderCluster{}, nil, []*offloadingv1beta1.NamespaceMap{m})
	require.Equal(t, map[string]string{
		"long": "its name there would have 64 characters, and may have 63", "failed": "the provider cannot make it",
	}, p.Missing)
	require.Equal(t, sets.New("made"), p.Namespaces)
}
