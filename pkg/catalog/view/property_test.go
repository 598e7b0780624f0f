package view

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

var (
	drawNamespace = rapid.SampledFrom([]string{"a", "a-b", "b", "c"})
	drawConsumer  = rapid.SampledFrom([]string{"", "c1", "c2"})
	drawCluster   = rapid.SampledFrom([]string{"p1", "p2", "p3", "p4"})
	drawRegion    = rapid.SampledFrom([]string{"", "eu", "us"})
	drawScope     = rapid.Custom(func(t *rapid.T) Scope {
		return Scope{
			All: rapid.IntRange(0, 3).Draw(t, "all") == 0, Consumer: drawConsumer.Draw(t, "of"),
			Namespace: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "in"),
		}
	})
)

func drawPod(t *rapid.T) *corev1.Pod {
	pod := podIn(drawNamespace.Draw(t, "namespace"), rapid.SampledFrom([]string{"web", "web-1", "db"}).Draw(t, "pod"))
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		unassignable("nothing fits")(pod)
	case 1:
		leaving(drawCluster.Draw(t, "from") + "-slice")(pod)
	default:
		assigned(drawCluster.Draw(t, "at"), rapid.IntRange(0, 100).Draw(t, "score"))(pod)
	}
	in(rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodFailed}).Draw(t, "phase"))(pod)
	if rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0 {
		pod.Spec.NodeName = "another"
	}
	return pod
}

func drawProvider(t *rapid.T) *v1alpha1.ProviderCluster {
	return cluster(drawCluster.Draw(t, "provider"), func(pc *v1alpha1.ProviderCluster) {
		pc.Spec.Enabled = rapid.Ptr(rapid.Bool(), true).Draw(t, "enabled")
		if region := drawRegion.Draw(t, "region"); region != "" {
			pc.Spec.Attributes["region"] = region
		}
		if rapid.Bool().Draw(t, "not ready") {
			pc.Status.Conditions[0].Status = "False"
		}
	})
}

func drawPolicy(t *rapid.T) *v1alpha1.PlacementPolicy {
	providers := rapid.SliceOfDistinct(drawCluster, rapid.ID[string]).Draw(t, "providers")
	switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); kind {
	case 0:
		policy := policyFor("team", rapid.SampledFrom([][]string{nil, {"c1"}, {"c1", "c2"}, {"c2"}}).Draw(t, "for")...)
		policy.Spec.Providers = providers
		return policy
	case 1:
		// A policy of another owner has the name of a selection.
		return policyFor("selection-c1", "c2")
	default:
		return selectionOf(rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "whose"),
			rapid.SampledFrom([]v1alpha1.SelectionMode{"", v1alpha1.SelectAllBut, v1alpha1.SelectOnly}).Draw(t, "mode"), providers...)
	}
}

func (w *world) checkPlacements(t *rapid.T) {
	q := PlacementQuery{
		Scope: drawScope.Draw(t, "scope"), Consumer: drawConsumer.Draw(t, "consumer"),
		Namespace: rapid.SampledFrom([]string{"", "", "a", "a-b"}).Draw(t, "namespace"),
		Provider:  rapid.SampledFrom([]string{"", "", "p1", "p2"}).Draw(t, "provider"),
		Phase:     rapid.SampledFrom([]string{"", "", "Running", "Pending"}).Draw(t, "phase"),
		Text:      rapid.SampledFrom([]string{"", "", "WEB", "a/", "b/db", "p2", "c1"}).Draw(t, "text"),
		Waiting:   rapid.IntRange(0, 3).Draw(t, "waiting") == 0,
	}
	q.Limit = rapid.IntRange(0, 4).Draw(t, "limit")
	want := w.truePlacements(func(p *api.Placement) bool {
		text := strings.ToLower(q.Text)
		return mayBeSeen(q.Scope, p) && (q.Consumer == "" || p.Consumer == q.Consumer) &&
			(q.Namespace == "" || p.Namespace == q.Namespace) && (q.Provider == "" || p.Provider == q.Provider) &&
			(q.Phase == "" || p.Phase == q.Phase) && (!q.Waiting || p.Provider == "" && p.Phase != "Failed") &&
			(strings.Contains(p.Namespace+"/"+p.Pod, text) || strings.Contains(p.Provider, text) || strings.Contains(p.Consumer, text))
	})
	got := []api.Placement{}
	for pages := 0; ; pages++ {
		list, err := w.Placements(q)
		require.NoError(t, err)
		require.Equal(t, len(want), list.Total, "%+v", q)
		require.True(t, q.Limit == 0 || len(list.Items) <= q.Limit)
		require.True(t, list.Continue == "" || len(list.Items) == q.Limit, "a page that is not the last one is full")
		got = append(got, list.Items...)
		if q.Continue = list.Continue; q.Continue == "" {
			break
		}
		require.Less(t, pages, 20, "the pages do not end")
	}
	require.Equal(t, want, got, "%+v", q)
}

func (w *world) checkProviders(t *rapid.T) {
	q := ProviderQuery{
		Consumer: drawConsumer.Draw(t, "for"), Region: drawRegion.Draw(t, "in region"),
		Ready: rapid.Ptr(rapid.Bool(), true).Draw(t, "ready"), Enabled: rapid.Ptr(rapid.Bool(), true).Draw(t, "enabled"),
		Text: rapid.SampledFrom([]string{"", "", "P2", "u", "fast"}).Draw(t, "text"),
	}
	q.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
	want := slices.DeleteFunc(w.trueProviders(q.Consumer), func(p api.Provider) bool {
		text := strings.Contains(p.ID, strings.ToLower(q.Text))
		for _, value := range p.Attributes {
			text = text || strings.Contains(value, q.Text)
		}
		return !text || q.Region != "" && p.Region != q.Region || q.Ready != nil && p.Ready != *q.Ready ||
			q.Enabled != nil && p.Enabled != *q.Enabled
	})
	got := []api.Provider{}
	for {
		list, err := w.Providers(q)
		require.NoError(t, err)
		require.Equal(t, len(want), list.Total, "%+v", q)
		got = append(got, list.Items...)
		if q.Continue = list.Continue; q.Continue == "" {
			break
		}
		require.Len(t, list.Items, q.Limit)
	}
	require.Equal(t, want, got, "%+v", q)
}

func (w *world) checkFlows(t *rapid.T) {
	scope := drawScope.Draw(t, "flows of")
	counts := map[[2]string]int{}
	for _, p := range w.truePlacements(func(p *api.Placement) bool { return mayBeSeen(scope, p) && p.Phase != "Failed" }) {
		counts[[2]string{p.Consumer, p.Provider}]++
	}
	got := w.Flows(scope).Items
	require.True(t, slices.IsSortedFunc(got, func(x, y api.Flow) int {
		return cmp.Or(strings.Compare(x.Consumer, y.Consumer), strings.Compare(x.Provider, y.Provider))
	}))
	require.Len(t, got, len(counts))
	for _, f := range got {
		require.Equal(t, counts[[2]string{f.Consumer, f.Provider}], f.Pods)
	}
}

func (w *world) checkPolicies(t *rapid.T) {
	scope := drawScope.Draw(t, "policies of")
	want, got := []string{}, []string{}
	each(w, func(p *v1alpha1.PlacementPolicy) {
		consumers := p.Spec.Consumers
		if scope.All || scope.Consumer != "" && (len(consumers) == 0 || slices.Contains(consumers, scope.Consumer)) {
			want = append(want, p.Name)
		}
	})
	page := Page{Limit: rapid.IntRange(0, 2).Draw(t, "limit")}
	for {
		list, err := w.Policies(scope, page)
		require.NoError(t, err)
		require.Equal(t, len(want), list.Total)
		for _, p := range list.Items {
			got = append(got, p.Name)
			require.True(t, scope.All || len(p.Consumers) == 0 || slices.Equal(p.Consumers, []string{scope.Consumer}))
		}
		if page.Continue = list.Continue; page.Continue == "" {
			break
		}
	}
	require.Equal(t, want, got)
}

// After any changes in any order, every answer is the same as one computed from all objects. A reader of the stream has
// the same data as a reader of the lists, and gets no pods of other consumers.
func TestTheViewIsWhatIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		t.Repeat(map[string]func(*rapid.T){
			"pod":         func(t *rapid.T) { w.set(drawPod(t)) },
			"another pod": func(t *rapid.T) { w.set(drawPod(t)) },
			"namespace": func(t *rapid.T) {
				n := namespaceOf(drawNamespace.Draw(t, "namespace"), drawConsumer.Draw(t, "consumer"))
				if rapid.IntRange(0, 3).Draw(t, "tenant's") == 0 {
					n.Labels[consts.TenantNamespaceLabel] = "true"
				}
				w.set(n)
			},
			"provider": func(t *rapid.T) { w.set(drawProvider(t)) },
			"virtual node": func(t *rapid.T) {
				vn := virtualNodeOf(rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "virtual node"), drawCluster.Draw(t, "of"),
					map[string]string{"disk": rapid.SampledFrom([]string{"fast", "slow"}).Draw(t, "disk")})
				vn.Namespace = "liqo-tenant"
				if region := drawRegion.Draw(t, "region"); region != "" {
					vn.Spec.Labels["region"] = region
				}
				w.set(vn)
			},
			"policy": func(t *rapid.T) { w.set(drawPolicy(t)) },
			"remove": w.removeOne,
			"read":   func(t *rapid.T) { w.read(t, rapid.SampledFrom(w.readers).Draw(t, "reader")) },
			"": func(t *rapid.T) {
				w.checkPlacements(t)
				w.checkProviders(t)
				w.checkFlows(t)
				w.checkPolicies(t)
			},
		})
		for _, r := range w.readers {
			w.read(t, r)
		}
	})
}

// Pages contain every object that stays exactly once, whatever is added and deleted between them.
func TestPagesAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-c]{1,4}"), 1, 30, rapid.ID[string]).Draw(t, "pods")
		stays := map[string]bool{}
		for _, name := range names {
			w.set(podIn("a", name))
			stays[name] = rapid.Bool().Draw(t, "stays")
		}
		seen := map[string]int{}
		q := PlacementQuery{Scope: Scope{All: true}, Page: Page{Limit: 3}}
		for {
			list, err := w.Placements(q)
			require.NoError(t, err)
			for _, p := range list.Items {
				seen[p.Pod]++
			}
			if q.Continue = list.Continue; q.Continue == "" {
				break
			}
			for _, name := range names {
				if !stays[name] && rapid.Bool().Draw(t, "comes or goes") {
					if w.has("a", name) {
						w.misses(podIn("a", name))
					} else {
						w.sees(podIn("a", name))
					}
				}
			}
		}
		for _, name := range names {
			require.LessOrEqual(t, seen[name], 1, name)
			require.True(t, !stays[name] || seen[name] == 1, "%s was there all the time", name)
		}
	})
}
