package scheduling

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// keys are the topology keys of the drawn federations, and the attribute of providers for each.
var keys = []struct{ node, attribute string }{
	{corev1.LabelTopologyRegion, "region"},
	{corev1.LabelTopologyZone, "zone"},
	{"tier", "tier"},
}

// drawnPlace is a provider, and a Node with the same labels. The first one has all keys: a key that no provider has is
// not applied to providers.
type drawnPlace struct{ labels, attributes map[string]string }

func drawPlaces(t *rapid.T) []drawnPlace {
	all := make([]drawnPlace, rapid.IntRange(1, 6).Draw(t, "places"))
	for i := range all {
		all[i] = drawnPlace{labels: map[string]string{}, attributes: map[string]string{}}
		for _, key := range keys {
			if i == 0 || rapid.IntRange(0, 4).Draw(t, "has "+key.attribute) > 0 {
				value := strconv.Itoa(rapid.IntRange(1, 3).Draw(t, key.attribute))
				all[i].labels[key.node], all[i].attributes[key.attribute] = value, value
			}
		}
	}
	return all
}

func drawKey(t *rapid.T) string { return rapid.SampledFrom(keys).Draw(t, "key").node }

func drawLabels(t *rapid.T) map[string]string {
	return map[string]string{
		"app": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "app"), "rev": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "rev"),
	}
}

func drawSelector(t *rapid.T) *metav1.LabelSelector {
	switch rapid.IntRange(0, 5).Draw(t, "selector") {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"},
		}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "selected")}}
}

func drawNodeTerm(t *rapid.T) corev1.NodeSelectorTerm {
	var term corev1.NodeSelectorTerm
	for range rapid.IntRange(1, 2).Draw(t, "requirements") {
		r := corev1.NodeSelectorRequirement{Key: drawKey(t), Operator: rapid.SampledFrom([]corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
			corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		}).Draw(t, "operator")}
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "2", "3"}), 1, 2, rapid.ID).Draw(t, "values")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			r.Values = []string{strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "value"))}
		}
		term.MatchExpressions = append(term.MatchExpressions, r)
	}
	return term
}

func drawTerms(t *rapid.T, most int) (terms []corev1.PodAffinityTerm) {
	for range rapid.IntRange(0, most).Draw(t, "terms") {
		terms = append(terms, corev1.PodAffinityTerm{TopologyKey: drawKey(t), LabelSelector: drawSelector(t)})
	}
	return terms
}

// drawPod draws a pod; one in two has constraints of each kind.
func drawPod(t *rapid.T, name string) *corev1.Pod {
	p := newPod(name, "")
	p.Labels = drawLabels(t)
	sometimes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	if sometimes("node selector") {
		p.Spec.NodeSelector = map[string]string{drawKey(t): strconv.Itoa(rapid.IntRange(1, 3).Draw(t, "value"))}
	}
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	if sometimes("node affinity") {
		required := &corev1.NodeSelector{}
		for range rapid.IntRange(1, 2).Draw(t, "node terms") {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, drawNodeTerm(t))
		}
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	}
	if sometimes("affinity") {
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = drawTerms(t, 2)
	}
	if sometimes("anti-affinity") {
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = drawTerms(t, 2)
	}
	if sometimes("spread") {
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 2, rapid.ID).Draw(t, "spread keys") {
			s := corev1.TopologySpreadConstraint{
				TopologyKey: key.node, MaxSkew: int32(rapid.IntRange(1, 2).Draw(t, "maxSkew")),
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: drawSelector(t),
			}
			if sometimes("anyway") {
				s.WhenUnsatisfiable = corev1.ScheduleAnyway
			} else if sometimes("minDomains") {
				s.MinDomains = ptr.To(int32(rapid.IntRange(1, 3).Draw(t, "minDomains")))
			}
			if sometimes("ignores affinity") {
				s.NodeAffinityPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore)
			}
			if s.LabelSelector != nil && sometimes("matchLabelKeys") {
				s.MatchLabelKeys = []string{"rev"}
			}
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, s)
		}
	}
	return p
}

// TestProvidersFitAsNodesDo draws a federation whose providers are written as Nodes, too, and compares where the
// broker's scheduler and the plugins of kube-scheduler let a pod run.
func TestProvidersFitAsNodesDo(t *testing.T) {
	metrics.Register() // The plugins count.
	rapid.Check(t, func(t *rapid.T) {
		places := drawPlaces(t)
		var running []*corev1.Pod
		at := map[string]int{}
		for i := range rapid.IntRange(0, 10).Draw(t, "pods") {
			p := drawPod(t, "pod-"+strconv.Itoa(i))
			at[p.Name] = rapid.IntRange(0, len(places)-1).Draw(t, "place")
			p.Spec.NodeName = place(at[p.Name])
			if rapid.IntRange(0, 4).Draw(t, "terminating") == 0 {
				p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			running = append(running, p)
		}
		pod := drawPod(t, "new")
		require.Equal(t, fitsNodes(t, places, running, pod), fitsProviders(places, running, at, pod))
	})
}

func fitsProviders(places []drawnPlace, running []*corev1.Pod, at map[string]int, pod *corev1.Pod) (fits []string) {
	s := scheduler.NewState()
	for i, p := range places {
		s.SetProvider(scheduler.Provider{
			ID: place(i), Enabled: true, Ready: true, Namespaces: sets.New("ns"), Attributes: p.attributes,
			Slices: []scheduler.Slice{{VirtualNode: place(i), Granted: resources.Amounts{}}},
		})
	}
	for _, p := range running {
		s.Assign(scheduler.Assignment{
			UID: types.UID(p.Name), Place: scheduler.Place{Provider: place(at[p.Name]), VirtualNode: place(at[p.Name])},
			Peer: constraints.PeerOf(p, constraints.Of(p, nil)),
		})
	}
	own := constraints.Of(pod, nil)
	d := s.Decide(time.Unix(0, 0), &scheduler.Pod{
		UID: pod.UID, Namespace: "ns", Labels: pod.Labels, Constraints: own, Peer: constraints.PeerOf(pod, own),
	}, nil)
	for i := range d.Verdicts {
		if d.Verdicts[i].Filter == verdict.Passed {
			fits = append(fits, d.Verdicts[i].Provider)
		}
	}
	return fits
}

// fitsNodes asks the plugins NodeAffinity, PodTopologySpread and InterPodAffinity.
func fitsNodes(t *rapid.T, places []drawnPlace, running []*corev1.Pod, pod *corev1.Pod) (fits []string) {
	ctx := t.Context()
	nodes := make([]*corev1.Node, len(places))
	for i := range places {
		nodes[i] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: place(i), Labels: places[i].labels}}
	}
	snapshot := cache.NewSnapshot(running, nodes)
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil, frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(fake.NewClientset(), 0)))
	require.NoError(t, err)
	features := feature.Features{EnableNodeInclusionPolicyInPodTopologySpread: true, EnableMatchLabelKeysInPodTopologySpread: true}
	affinity, err := nodeaffinity.New(ctx, &config.NodeAffinityArgs{}, handle, features)
	require.NoError(t, err)
	spread, err := podtopologyspread.New(ctx, &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}, handle, features)
	require.NoError(t, err)
	peers, err := interpodaffinity.New(ctx, &config.InterPodAffinityArgs{}, handle, features)
	require.NoError(t, err)

	infos, err := snapshot.NodeInfos().List()
	require.NoError(t, err)
	feasible := sets.New[string]()
	for _, info := range infos {
		feasible.Insert(info.Node().Name)
	}
	for _, plugin := range []fwk.Plugin{affinity, spread, peers} {
		state := framework.NewCycleState()
		_, status := plugin.(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, infos)
		if status.IsSkip() {
			continue
		}
		require.True(t, status.IsSuccess(), status.Message())
		for _, info := range infos {
			if !plugin.(fwk.FilterPlugin).Filter(ctx, state, pod, info).IsSuccess() {
				feasible.Delete(info.Node().Name)
			}
		}
	}
	fits = slices.Sorted(slices.Values(feasible.UnsortedList()))
	if len(fits) == 0 {
		return nil
	}
	return fits
}
