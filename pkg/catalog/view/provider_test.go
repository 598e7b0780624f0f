package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

func TestWhatAProviderShows(t *testing.T) {
	// The fields of every case.
	plain := func(change func(*api.Provider)) api.Provider {
		amounts := v1alpha1.Resources{Granted: cpus("8"), Assigned: cpus("1500m"), Free: cpus("6500m")}
		p := api.Provider{
			ID: "p1", Enabled: true, Ready: true, Attributes: map[string]string{}, Resources: amounts,
			VirtualNodes: []api.VirtualNode{{Name: "p1-slice", Ready: true, Pods: 3, Resources: amounts}},
			Pods:         3, KPIs: api.KPIs{LatencyMilliseconds: ptr.To[int64](4)},
			Conditions: []api.Condition{{Type: "Ready", Status: "True", Reason: "Ready", Since: noon}}, Created: noon,
		}
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		change     func(*v1alpha1.ProviderCluster)
		advertised map[string]string
		want       func(*api.Provider)
	}{
		"one without a spec is enabled": {
			change: func(*v1alpha1.ProviderCluster) {}, want: func(*api.Provider) {},
		},
		"what the operator decided": {
			change: func(pc *v1alpha1.ProviderCluster) {
				pc.Spec.Enabled, pc.Spec.Cordoned, pc.Spec.Drain = ptr.To(false), true, true
			},
			want: func(p *api.Provider) { p.Enabled, p.Cordoned, p.Draining = false, true, true },
		},
		"unknown is not ready": {
			change: func(pc *v1alpha1.ProviderCluster) { pc.Status.Conditions[0].Status = metav1.ConditionUnknown },
			want:   func(p *api.Provider) { p.Ready, p.Conditions[0].Status = false, "Unknown" },
		},
		"the operator's word wins over what the provider advertises": {
			change: func(pc *v1alpha1.ProviderCluster) {
				pc.Spec.Attributes = map[string]string{"region": "eu", "price": "0.04"}
			},
			advertised: map[string]string{"region": "us", "disk": "fast"},
			want: func(p *api.Provider) {
				p.Region, p.Price = "eu", ptr.To(0.04)
				p.Prices = []api.Prices{{PerHour: map[string]float64{"cpu": 0.04}}}
				p.Attributes = map[string]string{"region": "eu", "price": "0.04", "disk": "fast"}
			},
		},
		"neither where it is nor what it costs may come from the provider": {
			change:     func(*v1alpha1.ProviderCluster) {},
			advertised: map[string]string{"region": "us", "price": "0"},
			want: func(p *api.Provider) {
				p.Attributes = map[string]string{"region": "us", "price": "0"}
			},
		},
		"a price that is no number is unknown": {
			change: func(pc *v1alpha1.ProviderCluster) { pc.Spec.Attributes["price"] = "-1" },
			want:   func(p *api.Provider) { p.Attributes["price"] = "-1" },
		},
		"why a slice takes no pods": {
			change: func(pc *v1alpha1.ProviderCluster) { pc.Status.VirtualNodes[0].Reason = "VirtualNode terminating" },
			want:   func(p *api.Provider) { p.VirtualNodes[0].Reason = "VirtualNode terminating" },
		},
		"what it was measured by": {
			change: func(pc *v1alpha1.ProviderCluster) {
				pc.Status.KPIs = v1alpha1.KPIs{
					Uptime:   v1alpha1.Uptime{LastHour: "1.0000", LastDay: "0.9950", LastWeek: ""},
					PodStart: &v1alpha1.PodStart{P50Milliseconds: 900, P90Milliseconds: 1500}, Started: 3, Failed: 1, MovedAway: 2,
				}
			},
			want: func(p *api.Provider) {
				p.KPIs = api.KPIs{
					Uptime1h: ptr.To(1.0), Uptime24h: ptr.To(0.995), PodStartP50Millis: ptr.To[int64](900),
					PodStartP90Millis: ptr.To[int64](1500), FailureRate: ptr.To(0.25), MovedAway: 2,
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, plain(c.want), shownProvider(cluster("p1", c.change), virtualNodeOf("p1-slice", "p1", c.advertised)))
		})
	}
}

// The informers fill at the same time, each by its own list: the informer of namespaces may be the last.
func TestATenantNamespaceThatIsReadLastCounts(t *testing.T) {
	f := newFed(Config{})
	f.sees(
		&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "p1-slice"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1", Labels: map[string]string{"tier": "gold"}},
		},
		cluster("p1", func(pc *v1alpha1.ProviderCluster) {
			pc.Status.VirtualNodes = []v1alpha1.VirtualNodeStatus{{Name: "p1-slice", Ready: true}}
		}),
	)
	f.sees(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-p1", Labels: map[string]string{consts.TenantNamespaceLabel: "true", consts.RemoteClusterID: "p1"},
	}})
	shown, ok := f.Provider("p1", "")
	require.True(t, ok)
	require.Equal(t, "gold", shown.Attributes["tier"])
	list, err := f.Providers(ProviderQuery{Text: "gold"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "and it is found by that")

	f.misses(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-p1"}})
	shown, ok = f.Provider("p1", "")
	require.True(t, ok)
	require.Empty(t, shown.Attributes, "what is in no tenant namespace does not count")
}

func TestSelectedIsWhatTheConsumerChose(t *testing.T) {
	selected := func(f *fed, provider, consumer string) *bool {
		p, ok := f.Provider(provider, consumer)
		require.True(t, ok)
		return p.Selected
	}
	f := newFed(Config{})
	f.sees(cluster("p1"), cluster("p2"))
	require.Nil(t, selected(f, "p1", ""), "without a consumer")
	require.Equal(t, ptr.To(true), selected(f, "p1", "c1"), "who never chose has them all")

	f.sees(selectionOf("c1", v1alpha1.SelectAllBut, "p1"))
	require.Equal(t, ptr.To(false), selected(f, "p1", "c1"))
	require.Equal(t, ptr.To(true), selected(f, "p2", "c1"))
	require.Equal(t, ptr.To(true), selected(f, "p1", "c2"), "another's choice is another's")

	f.sees(selectionOf("c1", v1alpha1.SelectOnly, "p1"))
	require.Equal(t, ptr.To(true), selected(f, "p1", "c1"))
	require.Equal(t, ptr.To(false), selected(f, "p2", "c1"))

	shared := selectionOf("c1", v1alpha1.SelectOnly, "p1")
	shared.Spec.Consumers = []string{"c1", "c2"}
	f.sees(shared)
	require.Nil(t, selected(f, "p1", "c1"), "it is not the choice of c1 alone, and cannot be changed as such")

	f.misses(shared)
	require.Equal(t, ptr.To(true), selected(f, "p2", "c1"))
	_, ok := f.Provider("p3", "c1")
	require.False(t, ok)
}

func TestAHistoryIsSampled(t *testing.T) {
	f := newFed(Config{Samples: 3})
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	for minute := range 5 {
		f.sees(cluster("p1", func(pc *v1alpha1.ProviderCluster) { pc.Status.Pods = int32(minute) }))
		f.providers.sample(at(minute), f.cfg.Samples)
	}
	h, ok := f.History("p1")
	require.True(t, ok)
	require.Len(t, h.Samples, 3, "the oldest are forgotten")
	for i, s := range h.Samples {
		require.Equal(t, api.Sample{
			At: at(i + 2), Ready: true, LatencyMilliseconds: ptr.To[int64](4), Pods: int32(i + 2), CPUAssigned: 1.5, CPUGranted: 8,
		}, s)
	}
	require.Nil(t, h.WatchedSince)
	require.Equal(t, []api.Gap{}, h.Gaps)

	f.sees(cluster("p1", func(pc *v1alpha1.ProviderCluster) {
		pc.Status.KPIs.Uptime.Since = ptr.To(metav1.NewTime(at(-60).Local()))
		pc.Status.KPIs.Uptime.Gaps = []v1alpha1.Gap{{From: metav1.NewTime(at(-9)), To: metav1.NewTime(at(-8)), Kind: v1alpha1.GapDown}}
	}))
	h, _ = f.History("p1")
	require.Equal(t, ptr.To(at(-60)), h.WatchedSince)
	require.Equal(t, []api.Gap{{From: at(-9), To: at(-8), Kind: "Down"}}, h.Gaps)

	f.misses(cluster("p1"))
	_, ok = f.History("p1")
	require.False(t, ok)
	f.sees(cluster("p1"))
	h, _ = f.History("p1")
	require.Equal(t, []api.Sample{}, h.Samples, "a provider that comes back has no past")
}
