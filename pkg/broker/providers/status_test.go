package providers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestConditions(t *testing.T) {
	up := state.Provider{Probed: true, Confirmed: true, Kubelets: map[string]bool{"q1": false, "q2": true}}
	unreachable := up
	unreachable.UnreachableSince, unreachable.Problem, unreachable.Kubelets = noon, "no answer within 3s", map[string]bool{"q1": true}
	failedOnce, restarted := unreachable, unreachable
	failedOnce.Confirmed, failedOnce.UnreachableSince = false, time.Time{}
	restarted.Probed, restarted.Confirmed, restarted.Kubelets = false, false, nil
	silent := up
	silent.Kubelets = map[string]bool{"q1": false}
	rejects, reached := up, up
	rejects.Unusable, rejects.Reason, rejects.Problem = true, v1alpha1.ReasonRejects, "/readyz answers with the status 401"
	reached.Unusable, reached.Reason, reached.Problem = true, v1alpha1.ReasonKubeletReaches, "no answer within 3s"
	unclean := up
	unclean.Unclean = true
	other := started("--broker-node=other")

	for _, tc := range []struct {
		name      string
		known     state.Provider
		template  *offloadingv1beta1.VirtualNode
		connected bool
		want      string // Of Ready, Reachable, KubeletReady, NetworkReady, Clean.
		message   string
	}{
		{"one live virtual kubelet is enough", up, started("--broker-node=pool"), true, "True True True True True", ""},
		{
			"a provider that was not probed is not ready",
			state.Provider{},
			started("--broker-node=pool"), true, "False Unknown Unknown True True",
			"Reachable: NotProbedYet",
		},
		{
			"nor is one whose first probe failed",
			failedOnce, started("--broker-node=pool"), true, "False Unknown True True True",
			"Reachable: NotAnsweredYet, no answer within 3s",
		},
		{
			"an outage that the leader before saw goes on",
			restarted, started("--broker-node=pool"), true, "False False Unknown True True",
			"Reachable: NoAnswer, no answer within 3s",
		},
		{
			"an unreachable provider has the reason",
			unreachable, started("--broker-node=pool"), true, "False False True True True",
			"Reachable: NoAnswer, no answer within 3s",
		},
		{
			"one that rejects the broker is not unreachable",
			rejects, started("--broker-node=pool"), true, "False Unknown True True True",
			"Reachable: Rejects, /readyz answers with the status 401",
		},
		{
			"nor one that a virtual kubelet reaches",
			reached, started("--broker-node=pool"), true, "False Unknown True True True",
			"Reachable: KubeletReaches, no answer within 3s",
		},
		{
			"without a virtual kubelet no pod can be forwarded",
			silent, started("--broker-node=pool"), true, "False True False True True",
			"KubeletReady: LeaseLost, no virtual kubelet holds a live lease",
		},
		{
			"a virtual kubelet of another node is of no use",
			up, other, true, "False True False True True", "KubeletReady: ServesAnotherNode, its virtual kubelet " +
				"was not started with --broker-node of this broker: recreate the VirtualNode, " +
				"which is older than the options that set the flag",
		},
		{
			"without a network the pods cannot be reached",
			up, started("--broker-node=pool"), false, "False True True False True",
			"NetworkReady: NotConnected, the network to the provider is not established",
		},
		{
			"moved pods that are left do not concern readiness",
			unclean, started("--broker-node=pool"), true, "True True True True False", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := objects{connected: tc.connected}
			for _, name := range []string{"q1", "q2"} {
				vn := tc.template.DeepCopy()
				vn.Name = name
				in.virtualNodes = append(in.virtualNodes, vn)
			}
			status := statusOf(&v1alpha1.ProviderCluster{}, &tc.known, in, "pool")
			var got []string
			for _, c := range status.Conditions {
				got = append(got, string(c.Status))
			}
			require.Equal(t, tc.want, strings.Join(got, " "))
			require.Equal(t, tc.message, status.Conditions[0].Message)
		})
	}
}

// started is a VirtualNode whose virtual kubelet has these arguments.
func started(args ...string) *offloadingv1beta1.VirtualNode {
	vn := &offloadingv1beta1.VirtualNode{}
	vn.Spec.Template = &offloadingv1beta1.DeploymentTemplate{}
	vn.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Args: args}}
	return vn
}

// The status of a VirtualNode, a verdict and the scheduler use one translation.
func TestAVirtualNodeThatTakesNoPodsHasTheReason(t *testing.T) {
	terminating := started("--broker-node=pool")
	terminating.DeletionTimestamp = &metav1.Time{Time: noon}
	for name, tc := range map[string]struct {
		vn     *offloadingv1beta1.VirtualNode
		live   bool
		shared sets.Set[string]
		want   string
		ready  bool
		filter verdict.Filter
	}{
		"it takes pods":         {started("--broker-node=pool"), true, nil, "", true, verdict.Passed},
		"it is being deleted":   {terminating, true, nil, "VirtualNode terminating", true, verdict.Terminating},
		"its lease is not live": {started("--broker-node=pool"), false, nil, "not ready", false, verdict.NotReady},
		"it serves another node": {
			started("--nodename=q1"), true, nil, "virtual kubelet serves another node", false, verdict.ServesAnotherNode,
		},
		"another one has the same name": {
			started("--broker-node=pool"), true, sets.New("q1"), "VirtualNode name not unique", true, verdict.NameNotUnique,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.vn.Name = "q1"
			in := objects{virtualNodes: []*offloadingv1beta1.VirtualNode{tc.vn}, sharedNames: tc.shared, connected: true}
			known := state.Provider{Probed: true, Kubelets: map[string]bool{"q1": tc.live}}
			pc := &v1alpha1.ProviderCluster{}
			pc.Status = statusOf(pc, &known, in, "pool")
			require.Equal(t, tc.want, pc.Status.VirtualNodes[0].Reason)
			require.Equal(t, tc.ready, pc.Status.VirtualNodes[0].Ready)
			require.Equal(t, tc.filter, placement.Provider(pc, nil, nil).Slices[0].Filter)
		})
	}
}

// A list in the status has each name once, or the API server would reject all of it. The status shows the state that
// decisions use: explanations read the status.
func TestClosedSlicesAreShown(t *testing.T) {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := objects{virtualNodes: []*offloadingv1beta1.VirtualNode{{ObjectMeta: metav1.ObjectMeta{Name: "q1"}}}, connected: true}
	in.virtualNodes[0].Spec.ResourceQuota.Hard = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	for name, tc := range map[string]struct {
		closed   map[string]state.Closing
		reserved map[string]state.Reservation
		reason   string
		starts   string
		verdicts map[string]string // By owner.
	}{
		"it takes pods": {nil, nil, "", "", map[string]string{"c1": "fits", "c2": "fits"}},
		"none starts": {
			map[string]state.Closing{"q1": {Since: since, Owners: []string{"c1", "c2"}}},
			nil, "starts no pods",
			"pods assigned there did not start, so only one pod per minute is tried: q1 since 2026-03-01T12:00:00Z",
			map[string]string{"c1": "starts no pods", "c3": "starts no pods"},
		},
		"none of one owner starts": {
			map[string]state.Closing{"q1": {Since: since, Owners: []string{"c1"}}},
			nil, "",
			"pods assigned there did not start, so only one pod per minute is tried: q1 since 2026-03-01T12:00:00Z (pods of c1)",
			map[string]string{"c1": "starts no pods", "c2": "fits"},
		},
		"a pod waits for it": {
			nil,
			map[string]state.Reservation{"q1": {UID: "large", Since: since, Requests: resources.Amounts{corev1.ResourceCPU: 1500}}},
			"", "",
			map[string]string{"c1": "reserved for a larger pod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			known := state.Provider{
				Probed: true, Confirmed: true, Kubelets: map[string]bool{"q1": true}, Closed: tc.closed, Reserved: tc.reserved,
			}
			pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
			pc.Status = statusOf(pc, &known, in, "pool")
			require.Equal(t, tc.reason, pc.Status.VirtualNodes[0].Reason)
			starts := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderStartsPods)
			if tc.starts == "" {
				require.Nil(t, starts)
			} else {
				require.Equal(t, tc.starts, starts.Message)
				require.Equal(t, metav1.ConditionFalse, starts.Status)
			}
			provider := placement.Provider(pc, in.virtualNodes, nil)
			provider.Namespaces.Insert("ns")
			state := scheduler.NewState()
			state.SetProvider(provider)
			for owner, reason := range tc.verdicts {
				d := state.Decide(since, &scheduler.Pod{
					UID: "pod", Namespace: "ns", Owner: owner, Requests: resources.Amounts{corev1.ResourceCPU: 1000},
				}, nil)
				require.Equal(t, reason, d.Verdicts[0].Reason(), owner)
			}
		})
	}
}

func TestTwoVirtualNodesOfOneNameAreOneInTheStatus(t *testing.T) {
	one, two := started("--broker-node=pool"), started("--broker-node=pool")
	one.Name, one.Namespace, two.Name, two.Namespace = "q1", "a", "q1", "b"
	in := objects{virtualNodes: []*offloadingv1beta1.VirtualNode{one, two}, sharedNames: sets.New("q1")}
	status := statusOf(&v1alpha1.ProviderCluster{}, &state.Provider{}, in, "pool")
	require.Len(t, status.VirtualNodes, 1)
}

func TestAProviderIsDrainedWhenNoPodIsLeft(t *testing.T) {
	in := objects{virtualNodes: []*offloadingv1beta1.VirtualNode{started()}}
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	known := state.Provider{}
	drained := func(pods int) *metav1.Condition {
		known.Assigned = map[string]state.Assigned{"": {Pods: pods}}
		pc.Status = statusOf(pc, &known, in, "pool")
		return meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderDrained)
	}
	require.Nil(t, drained(2))
	pc.Spec.Drain = true
	c := drained(2)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, "2 pods are left", c.Message)
	require.Equal(t, "1 pod is left", drained(1).Message)
	known.MovesWaiting = disruption.Waiting{Pods: 1, Example: "ns/web-1: maxUnavailable is 1 of 2 replicas, and 1 is unavailable: web-0"}
	require.Equal(t, "1 pod is left, 1 waits for its replicas to be Ready (ns/web-1: maxUnavailable is 1 of 2 replicas, and 1 is "+
		"unavailable: web-0)", drained(1).Message)
	require.Equal(t, v1alpha1.ReasonPodsLeft, drained(1).Reason)
	known.MovesWaiting = disruption.Waiting{Pods: 2, Example: "ns/web-1: maxUnavailable is 1 of 3 replicas, and 1 is unavailable: web-0"}
	require.Equal(t, "4 pods are left, 2 wait for their replicas to be Ready, such as ns/web-1: maxUnavailable is 1 of 3 replicas, "+
		"and 1 is unavailable: web-0", drained(4).Message)
	known.MovesWaiting = disruption.Waiting{}
	require.Equal(t, metav1.ConditionFalse, drained(0).Status, "the scheduler may assign one at this moment")
	known.Draining, known.Unclean = true, true
	require.Equal(t, v1alpha1.ReasonMovedPodsLeft, drained(0).Reason, "it was unreachable, and may still run what was moved away")
	known.Unclean = false
	c = drained(0)
	require.Equal(t, metav1.ConditionTrue, c.Status)
	require.Equal(t, int64(3), c.ObservedGeneration)
	require.Empty(t, c.Message)
	pc.Spec.Drain = false
	require.Nil(t, drained(0))
}

func TestWhichNodeAVirtualKubeletServes(t *testing.T) {
	for name, tc := range map[string]struct {
		vn   *offloadingv1beta1.VirtualNode
		want bool
	}{
		"the broker's":            {started("--nodename=q1", "--broker-node=pool"), true},
		"Liqo's own":              {started("--nodename=q1", "--create-node=true"), false},
		"that of another broker":  {started("--broker-node=pool2"), false},
		"the template is not set": {&offloadingv1beta1.VirtualNode{}, true},
	} {
		require.Equal(t, tc.want, servesNode(tc.vn, "pool"), name)
	}
}

func TestStatusShowsWhatIsGrantedAssignedAndFree(t *testing.T) {
	gib := int64(1 << 30)
	r := amounts(
		resources.Amounts{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 8 * gib, "nvidia.com/gpu": 2},
		resources.Amounts{corev1.ResourceCPU: 4500, corev1.ResourceMemory: gib / 2, "other": 1})
	requireQuantity := func(want string, list corev1.ResourceList, name corev1.ResourceName) {
		t.Helper()
		got := list[name]
		require.Equal(t, want, got.String())
	}
	requireQuantity("4500m", r.Assigned, corev1.ResourceCPU)
	requireQuantity("0", r.Free, corev1.ResourceCPU) // More is assigned than granted.
	requireQuantity("7680Mi", r.Free, corev1.ResourceMemory)
	requireQuantity("2", r.Free, "nvidia.com/gpu")
	require.NotContains(t, r.Assigned, corev1.ResourceName("other"))

	milliseconds := int64(12)
	s := summarize(&v1alpha1.ProviderClusterStatus{Resources: r, KPIs: v1alpha1.KPIs{
		Uptime: v1alpha1.Uptime{LastDay: "0.9876"}, LatencyMilliseconds: &milliseconds,
	}})
	require.Equal(t, v1alpha1.Summary{CPU: "4500m/4", Memory: "512Mi/8Gi", Uptime: "98.8%", Latency: "12ms"}, s)
	require.Equal(t, v1alpha1.Summary{}, summarize(&v1alpha1.ProviderClusterStatus{}), "what is not known is not shown")
}

func TestOnlyKPIsMayWait(t *testing.T) {
	a := v1alpha1.ProviderClusterStatus{Pods: 1, Summary: v1alpha1.Summary{CPU: "1/4", Uptime: "99.0%"}}
	b := *a.DeepCopy()
	b.KPIs.MovedAway, b.Summary.Uptime = 3, "98.0%"
	require.True(t, sameButKPIs(&a, &b))
	b.Pods = 2
	require.False(t, sameButKPIs(&a, &b))

	status := func(ready metav1.ConditionStatus, message, reason string) *v1alpha1.ProviderClusterStatus {
		return &v1alpha1.ProviderClusterStatus{
			Conditions:   []metav1.Condition{{Type: "Ready", Status: ready, Message: message}},
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: "q1", Reason: reason}},
		}
	}
	require.True(t, sameConditions(status(metav1.ConditionTrue, "a", ""), status(metav1.ConditionTrue, "b", "")))
	require.False(t, sameConditions(status(metav1.ConditionTrue, "a", ""), status(metav1.ConditionFalse, "a", "")))
	require.False(t, sameConditions(status(metav1.ConditionTrue, "a", ""), status(metav1.ConditionTrue, "a", "not ready")))
}

// Conditions are written within a second, amounts within the interval, KPIs within six, and the controller's own write is
// not reconciled.
func TestAStatusIsWrittenWhenItIsTime(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	before := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "q", Generation: 1}}
	home := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(before).WithObjects(before).Build()
	now := clocktesting.NewFakeClock(noon)
	c := New(Config{Clock: now, Client: home, StatusInterval: 10 * time.Second})
	stored := func() *v1alpha1.ProviderCluster {
		var pc v1alpha1.ProviderCluster
		require.NoError(t, home.Get(t.Context(), client.ObjectKeyFromObject(before), &pc))
		return &pc
	}
	// write changes the status after a wait, and returns when to try again, and whether it was written.
	write := func(wait time.Duration, change func(*v1alpha1.ProviderClusterStatus)) (time.Duration, bool) {
		now.Step(wait)
		is := stored()
		updated := is.DeepCopy()
		change(&updated.Status)
		after, err := c.writeStatus(t.Context(), is, updated)
		require.NoError(t, err)
		written := stored()
		require.True(t, c.wrote(event.UpdateEvent{ObjectOld: is, ObjectNew: written}))
		return after, written.ResourceVersion != is.ResourceVersion
	}
	pods := func(s *v1alpha1.ProviderClusterStatus) { s.Pods++ }
	kpis := func(s *v1alpha1.ProviderClusterStatus) { s.KPIs.MovedAway++ }
	ready := func(s *v1alpha1.ProviderClusterStatus) {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: fmt.Sprint("C", len(s.Conditions)), Status: metav1.ConditionTrue})
	}
	for _, tc := range []struct {
		wait    time.Duration
		change  func(*v1alpha1.ProviderClusterStatus)
		written bool
		after   time.Duration
	}{
		{0, pods, true, 10 * time.Second},
		{3 * time.Second, pods, false, 7 * time.Second},
		{time.Second, ready, true, 10 * time.Second},
		{500 * time.Millisecond, ready, false, 500 * time.Millisecond},
		{500 * time.Millisecond, ready, true, 10 * time.Second},
		{4 * time.Second, kpis, false, 6 * time.Second},
		{6 * time.Second, kpis, false, 10 * time.Second},
		{49 * time.Second, kpis, false, time.Second},
		{time.Second, kpis, true, 10 * time.Second},
		{10 * time.Second, pods, true, 10 * time.Second},
	} {
		after, written := write(tc.wait, tc.change)
		require.Equal(t, tc.written, written, tc)
		require.Equal(t, tc.after, after, tc)
	}

	own := stored()
	require.True(t, c.wrote(event.UpdateEvent{ObjectOld: own, ObjectNew: own}))
	changed := own.DeepCopy()
	changed.Generation++
	require.False(t, c.wrote(event.UpdateEvent{ObjectOld: own, ObjectNew: changed}), "an administrator has changed it too")
	changed = own.DeepCopy()
	changed.ResourceVersion += "0"
	require.False(t, c.wrote(event.UpdateEvent{ObjectOld: own, ObjectNew: changed}), "another one has written it since")
	require.False(t, New(Config{}).wrote(event.UpdateEvent{ObjectOld: own, ObjectNew: own}), "another leader has written it")
}

func TestALeaseIsLiveWhileItsHolderRenewsIt(t *testing.T) {
	lease := func(holder string, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime: &metav1.MicroTime{Time: noon.Add(-renewed)},
		}}
	}
	live := func(lease *coordinationv1.Lease) bool {
		return leaseIsLive(lease, ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time, noon)
	}
	require.True(t, live(lease("vk", 10*time.Second)))
	require.True(t, live(lease("vk", 29*time.Second)), "another replica may take over")
	require.False(t, live(lease("vk", 31*time.Second)))
	require.False(t, live(lease("", time.Second)), "it was given back")
	require.False(t, live(&coordinationv1.Lease{}))
	connecting := lease("vk", time.Second)
	connecting.Annotations = map[string]string{v1alpha1.ConnectingAnnotation: "vk"}
	require.False(t, live(connecting), "it serves no pods yet")
	connecting.Annotations[v1alpha1.ConnectingAnnotation] = "another"
	require.True(t, live(connecting), "which held it before")
}
