package providers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// drawFederation draws the objects of up to three providers: slices that are being deleted, that serve another node,
// whose names are not unique, namespaces that are mapped or not, and the settings of administrators.
func drawFederation(t *rapid.T) []client.Object {
	var objects []client.Object
	for _, id := range []string{"p1", "p2", "p3"}[:rapid.IntRange(1, 3).Draw(t, "providers")] {
		tenant := "liqo-tenant-" + id
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{
				consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true",
			}}},
			&v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.ProviderClusterSpec{
				Cordoned: rapid.IntRange(0, 4).Draw(t, "cordoned") == 0, Drain: rapid.IntRange(0, 4).Draw(t, "drain") == 0,
				Attributes: map[string]string{"price": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "price")},
			}},
			&offloadingv1beta1.NamespaceMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: id, Labels: map[string]string{consts.RemoteClusterID: id}},
				Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": "ns-broker"}},
				Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
					"ns": {RemoteNamespace: "ns-broker", Phase: rapid.SampledFrom([]offloadingv1beta1.MappingPhase{
						offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingTerminating,
					}).Draw(t, "mapping")},
				}},
			},
			&liqov1beta1.ForeignCluster{
				ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
			})
		for n := range rapid.IntRange(1, 2).Draw(t, "slices") {
			vn := started(rapid.SampledFrom([]string{"--broker-node=pool", "--broker-node=pool", "--broker-node=other"}).Draw(t, "serves"))
			vn.Namespace, vn.Name = fmt.Sprint(tenant, "-", n), fmt.Sprint(id, "-", n+1)
			cluster := id
			if n > 0 { // A provider without any is not known to the broker; an explanation has it if it is administered.
				cluster = rapid.SampledFrom([]string{id, id, "stranger"}).Draw(t, "tenant")
			}
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vn.Namespace, Labels: map[string]string{
				consts.RemoteClusterID: cluster, consts.TenantNamespaceLabel: "true",
			}}})
			if rapid.IntRange(0, 4).Draw(t, "shared") == 0 {
				vn.Name = "shared"
			}
			if rapid.IntRange(0, 4).Draw(t, "terminating") == 0 {
				vn.DeletionTimestamp, vn.Finalizers = &metav1.Time{Time: noon}, []string{"test/keep"}
			}
			vn.Spec.ClusterID, vn.Spec.Labels = liqov1beta1.ClusterID(id), map[string]string{"zone": fmt.Sprint(n)}
			vn.Spec.ResourceQuota.Hard = corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(rapid.SampledFrom([]string{"2", "4500m", "0"}).Draw(t, "cpu")),
				corev1.ResourceMemory: resource.MustParse("8Gi"),
			}
			objects = append(objects, vn)
		}
	}
	return objects
}

// drawPolicies draws PlacementPolicies, and the selection of the consumer c1.
func drawPolicies(t *rapid.T) []client.Object {
	var objects []client.Object
	ids := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"p1", "p2", "p3"}), rapid.ID[string])
	for _, name := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, "policies")] {
		policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec = v1alpha1.PlacementPolicySpec{
			Priority:  rapid.Int32Range(0, 1).Draw(t, "priority"),
			Consumers: rapid.SampledFrom([][]string{nil, nil, {"c1"}, {"c2"}}).Draw(t, "consumers"),
			Filter: rapid.SampledFrom([]string{
				"", "", "provider.attributes['price'] == '1'", "provider.labels['zone'] == pod.labels[?'app'].orValue('0')",
				"has(provider.kpis.latencyMilliseconds) && provider.kpis.latencyMilliseconds < 50", "nonsense",
			}).Draw(t, "filter"),
			Score: rapid.SampledFrom([]string{
				"", "provider.id == 'p2' ? 100 : 30", "provider.labels['zone'] == '1' ? 5 : 300",
			}).Draw(t, "score"),
		}
		if rapid.IntRange(0, 3).Draw(t, "names providers") == 0 {
			policy.Spec.Providers = ids.Draw(t, "named")
		}
		for _, plugin := range rapid.SliceOfDistinct(rapid.SampledFrom(score.Plugins()), rapid.ID[string]).Draw(t, "plugins") {
			policy.Spec.Weights = append(policy.Spec.Weights, v1alpha1.Weight{Name: plugin, Weight: rapid.Int32Range(0, 9).Draw(t, plugin)})
		}
		if key := rapid.SampledFrom([]string{"", "provider", "zone", "price"}).Draw(t, "spread"); key != "" {
			policy.Spec.Spread = &v1alpha1.Spread{TopologyKey: key}
		}
		objects = append(objects, policy)
	}
	if rapid.IntRange(0, 2).Draw(t, "selects") == 0 {
		objects = append(objects, &v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "selection"}, Spec: v1alpha1.PlacementPolicySpec{
				Consumers: []string{"c1"}, Selection: &v1alpha1.Selection{
					Mode:      rapid.SampledFrom([]v1alpha1.SelectionMode{v1alpha1.SelectAllBut, v1alpha1.SelectOnly}).Draw(t, "mode"),
					Providers: ids.Draw(t, "selected"),
				},
			},
		})
	}
	return objects
}

// drawPod draws a pod of the broker's node that requests CPUs.
func drawPod(t *rapid.T, name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{},
			Labels: map[string]string{"app": rapid.SampledFrom([]string{"0", "1"}).Draw(t, "app")},
		},
		Spec: corev1.PodSpec{NodeName: "pool", Containers: []corev1.Container{{Name: "c"}}},
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(rapid.SampledFrom([]string{"1", "3"}).Draw(t, "requests")),
	}
	return pod
}

// drawUnassigned draws the pod that is decided about. It may name a policy, have a filter, and have been tried at
// VirtualNodes.
func drawUnassigned(t *rapid.T, virtualNodes []scheduler.Place) *corev1.Pod {
	pod, now := drawPod(t, "pod"), time.Now()
	if policy := rapid.SampledFrom([]string{"", "", "", "a", "none"}).Draw(t, "policy"); policy != "" {
		pod.Annotations[v1alpha1.PolicyAnnotation] = policy
	}
	filters := []string{"", "", "", "provider.id != 'p1'", "provider.attributes['none'] == ''"}
	if filter := rapid.SampledFrom(filters).Draw(t, "pod filter"); filter != "" {
		pod.Annotations[v1alpha1.FilterAnnotation] = filter
	}
	var tried backoff.Tries
	for _, at := range virtualNodes {
		ended, reason := now.Add(-time.Hour), "not started within 2m"
		switch rapid.IntRange(0, 5).Draw(t, "tried at "+at.VirtualNode) {
		case 0:
			ended, reason = now, "refused"
		case 1:
		default:
			continue
		}
		tried = tried.After(at.VirtualNode, reason, ended, 10*time.Minute)
	}
	if tried != nil {
		pod.Annotations[v1alpha1.TriesAnnotation] = tried.Annotation()
	}
	if len(virtualNodes) > 0 && rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
		from := rapid.SampledFrom(virtualNodes).Draw(t, "from")
		pod.Annotations[v1alpha1.MovingFromAnnotation] = from.VirtualNode
		pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = from.Provider
	}
	return pod
}

// drawAssigned draws pods that are assigned, or have ended, and observes them.
func drawAssigned(t *rapid.T, known *state.Federation, virtualNodes []scheduler.Place) []*corev1.Pod {
	if len(virtualNodes) == 0 {
		return nil
	}
	var pods []*corev1.Pod
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		pod, at := drawPod(t, fmt.Sprint("other-", i)), rapid.SampledFrom(virtualNodes).Draw(t, "at")
		pod.Labels[v1alpha1.VirtualNodeLabel], pod.Labels[v1alpha1.ProviderLabel] = at.VirtualNode, at.Provider
		if rapid.IntRange(0, 3).Draw(t, "ended") == 0 {
			pod.Status.Phase = corev1.PodSucceeded
			known.ObserveEnded(pod, at)
		} else {
			known.ObserveAssigned(pod, at)
		}
		pods = append(pods, pod)
	}
	return pods
}

// drawProbes draws and observes probe results: providers that answer or not, virtual kubelets with a lease or without,
// and providers that have not removed the pods that were moved away. It returns the VirtualNodes.
func drawProbes(t *rapid.T, known *state.Federation) (all []scheduler.Place) {
	for _, id := range slices.Sorted(slices.Values(known.Providers())) {
		p, _ := known.Provider(id)
		virtualNodes := slices.Sorted(maps.Keys(p.Assigned))
		live := map[string]bool{}
		for _, virtualNode := range virtualNodes {
			live[virtualNode] = rapid.IntRange(0, 4).Draw(t, "lease") > 0
			all = append(all, scheduler.Place{Provider: id, VirtualNode: virtualNode})
		}
		answered := rapid.IntRange(0, 4).Draw(t, "answered") > 0
		for range 2 {
			known.ObserveProbe(id, state.Probe{
				Began: noon, Ended: noon, Answered: answered, Took: 4 * time.Millisecond, Problem: "no answer", Kubelets: live,
			})
		}
		if rapid.IntRange(0, 4).Draw(t, "unclean") == 0 && len(virtualNodes) > 0 {
			known.ObserveGivenUp(all[len(all)-1])
		}
	}
	return all
}

// requireEqualVerdicts compares the explanation that users see with the broker's decision.
func requireEqualVerdicts(t *rapid.T, decision *scheduler.Decision, explanation *explain.Explanation) {
	require.Equal(t, decision.Provider, explanation.Chosen)
	require.Len(t, explanation.Providers, len(decision.Verdicts))
	for i := range decision.Verdicts {
		v := &decision.Verdicts[i]
		shown := explanation.Providers[i]
		want := explain.Choice{
			Provider: v.Provider, VirtualNode: v.VirtualNode, Score: v.Total,
			Price: shown.Price, HourlyCost: shown.HourlyCost, Currency: shown.Currency,
		}
		if v.Filter != verdict.Passed {
			want.Filtered = v.Reason()
		} else {
			want.Points = map[string]int{}
			for _, part := range v.Contributions() {
				want.Points[part.Plugin] = part.Points
			}
		}
		require.Equal(t, want, shown)
	}
}

// An explanation from the API has the same decision as the broker, for every federation and every pod: with slices that
// are being deleted, of other nodes, of names that are not unique; with providers that are unreachable, unclean,
// cordoned or drained; with policies, selections, expressions and earlier tries.
func TestExplanationsDecideAsTheBroker(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	programs, decoder := cel.NewCache(8<<20), serializer.NewCodecFactory(scheme).UniversalDecoder()
	rapid.Check(t, func(t *rapid.T) {
		objects := append(drawFederation(t), drawPolicies(t)...)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{
			consts.RemoteClusterID: rapid.SampledFrom([]string{"", "c1", "c1", "p1"}).Draw(t, "consumer"),
		}}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithObjects(namespace).
			WithStatusSubresource(&v1alpha1.ProviderCluster{}).
			// The default one takes half of the time, for managed fields.
			WithObjectTracker(clienttesting.NewObjectTracker(scheme, decoder)).
			Build()
		known := state.New(state.Config{Clock: clock.RealClock{}, SuspicionWindow: time.Minute, ProbeInterval: time.Second})
		controller := New(Config{
			Log: logr.Discard(), Clock: clock.RealClock{}, Client: c, State: known, Connections: remote.NewConnections(nil, nil, ""),
			Cleaner: termination.NewCleaner(termination.CleanerConfig{State: known}), Queue: &requeue.Queue{},
			NodeName: "pool", Selector: labels.Everything(),
			Changed: func(context.Context, string) {}, Restore: func(context.Context) error { return nil },
		})
		reconcile := func() {
			for _, o := range objects {
				if pc, ok := o.(*v1alpha1.ProviderCluster); ok {
					_, err := controller.reconcile(t.Context(), pc.Name)
					require.NoError(t, err)
				}
			}
		}
		reconcile()
		virtualNodes := drawProbes(t, known)
		for _, assigned := range drawAssigned(t, known, virtualNodes) {
			require.NoError(t, c.Create(t.Context(), assigned))
		}
		reconcile()
		pod := drawUnassigned(t, virtualNodes)
		require.NoError(t, c.Create(t.Context(), pod))

		explanation, err := explain.Pod(t.Context(), c, "pool", client.ObjectKeyFromObject(pod), time.Now())
		require.NoError(t, err)
		policies := placement.Policies{Client: c, Programs: programs}
		asked, err := policies.CriteriaOf(t.Context(), pod, namespace)
		if err != nil {
			require.ErrorIs(t, err, placement.ErrInvalid)
			require.Equal(t, err.Error(), explanation.Message)
			require.Empty(t, explanation.Providers)
			return
		}
		if from := placement.MovingFrom(pod); from != (scheduler.Place{}) {
			known.ObserveAssigned(pod, from)
			known.ObserveLeft(pod, from)
		}
		decision := known.Assume(asked.Pod(pod, namespace), asked.Policy)
		message := decision.Prospect()
		if decision.Err != nil {
			message = decision.Err.Error()
		}
		require.True(t, strings.HasPrefix(explanation.Message, message), "%s: %s", explanation.Message, message)
		requireEqualVerdicts(t, &decision, explanation)
	})
}
