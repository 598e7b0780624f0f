package simulate

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// congested has pods that wait, two sizes, a filter, and a provider that is cordoned.
const congested = `
start: 2026-03-02T00:00:00Z
duration: 6h
seed: 11
providers:
- {id: oslo, attributes: {region: eu, price: "0.05"}, granted: {cpu: 8, memory: 64Gi, pods: 100}}
- {id: turin, attributes: {region: eu, price: "0.03"}, granted: {cpu: 6, memory: 64Gi, pods: 100}}
- {id: austin, attributes: {region: us, price: "0.02"}, granted: {cpu: 8, memory: 64Gi, pods: 5}}
policies:
- metadata: {name: europe}
  spec:
    podSelector: {matchLabels: {app: web}}
    filter: "provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 1.0"
    weights: [{name: price, weight: 2}, {name: free, weight: 1}]
- metadata: {name: rest}
  spec: {priority: -1, weights: [{name: price, weight: 1}, {name: free, weight: 2}, {name: spread, weight: 1}]}
consumers:
- id: shop
  workloads:
  - name: web
    arrivals: {perHour: 20, initial: 4}
    lifetime: {distribution: exponential, mean: 40m}
    labels: {app: web}
    requests: {cpu: 500m, memory: 1Gi}
  - name: large
    arrivals: {perHour: 7}
    lifetime: {distribution: exponential, mean: 40m}
    labels: {app: large}
    requests: {cpu: 3, memory: 1Gi}
events:
- {at: 3h, provider: turin, action: Cordon}
- {at: 4h, provider: turin, action: Uncordon}
`

// The federation decides the same when the history of a report is observed by hand: the times of arrivals and ends are
// the report's, the decisions are not.
func TestTheFederationDecidesTheSame(t *testing.T) {
	sc, err := Parse([]byte(congested))
	require.NoError(t, err)
	r := run(t, congested)
	require.Greater(t, r.Waited.P90, 60.0, "some pods have waited")
	require.Positive(t, r.Pods.Never+r.Pods.Waiting, "some still wait")

	h := newByHand(t, sc)
	for _, of := range r.records {
		h.at(of.arrived, func() { h.arrive(of.name) })
		if !of.ended.IsZero() {
			h.at(of.ended, func() { h.end(of.name) })
		}
	}
	for i := range sc.Events {
		h.at(sc.Start.Add(sc.Events[i].At.Duration), func() { h.cordon("turin", i == 0) })
	}
	h.run(sc.Start.Add(sc.Duration.Duration))
	decided := 0
	for _, of := range r.records {
		got := h.placed[of.name]
		if of.placed.IsZero() {
			require.Empty(t, got.provider, of.name)
			continue
		}
		decided++
		require.Equal(t, of.places, []string{got.provider}, of.name)
		require.Equal(t, of.placed, got.at, of.name)
	}
	require.Greater(t, decided, 100)
	require.Subset(t, []string{"austin", "oslo", "turin"}, slices.Collect(maps.Keys(h.used)))
	require.Len(t, h.used, 3, "each provider was chosen")
}

type place struct {
	provider string
	at       time.Time
}

type step struct {
	at  time.Time
	run func()
}

// byHand observes a history in a Federation, without the package under test.
type byHand struct {
	t        *testing.T
	scenario *Scenario
	clock    *testingclock.FakePassiveClock
	state    *state.Federation
	policies *placement.Policies
	pods     map[string]*corev1.Pod
	waiting  map[string]bool
	placed   map[string]place
	used     map[string]bool
	steps    []step
	// woken is when pods were woken last, soon when they are woken for a change, due when without one.
	woken, soon, due time.Time
}

func newByHand(t *testing.T, sc *Scenario) *byHand {
	h := &byHand{
		t: t, scenario: sc, clock: testingclock.NewFakePassiveClock(sc.Start.Time), pods: map[string]*corev1.Pod{},
		waiting: map[string]bool{}, placed: map[string]place{}, used: map[string]bool{},
	}
	cfg := options().State
	cfg.Clock = h.clock
	h.state = state.New(cfg)
	h.policies = &placement.Policies{Client: &policyList{items: sc.Policies}, Programs: cel.NewCache(1 << 20), Defaults: options().Rules}
	for i := range sc.Providers {
		id := sc.Providers[i].ID
		spec := state.ProviderSpec{
			Enabled: true, VirtualNodes: map[string]bool{id: false}, RemoteNamespaces: map[string]string{"shop": "shop"},
		}
		h.state.SetProvider(id, spec, &v1alpha1.ProviderClusterStatus{})
		h.state.ObserveProbe(id, state.Probe{
			Began: sc.Start.Time, Ended: sc.Start.Time, Answered: true, Took: defaultLatency, Kubelets: map[string]bool{id: true},
		})
		h.cordon(id, false)
	}
	return h
}

func (h *byHand) cordon(id string, cordoned bool) {
	i := slices.IndexFunc(h.scenario.Providers, func(p Provider) bool { return p.ID == id })
	of := &h.scenario.Providers[i]
	m := &offloadingv1beta1.NamespaceMap{}
	m.Spec.DesiredMapping = map[string]string{"shop": "shop"}
	m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{
		"shop": {RemoteNamespace: "shop", Phase: offloadingv1beta1.MappingAccepted},
	}
	pc := &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       v1alpha1.ProviderClusterSpec{Attributes: of.Attributes, Cordoned: cordoned},
		Status: v1alpha1.ProviderClusterStatus{
			Conditions:   []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}},
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id, Ready: true, Resources: v1alpha1.Resources{Granted: of.Granted}}},
		},
	}
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: id}}
	if h.state.Schedule(placement.Provider(pc, []*offloadingv1beta1.VirtualNode{vn}, []*offloadingv1beta1.NamespaceMap{m})) {
		h.changed()
	}
}

func (h *byHand) at(t time.Time, run func()) { h.steps = append(h.steps, step{t, run}) }

// run takes the steps, and wakes the waiting pods as requeue.Pods does.
func (h *byHand) run(end time.Time) {
	slices.SortStableFunc(h.steps, func(x, y step) int { return x.at.Compare(y.at) })
	for _, next := range append(h.steps, step{end, func() {}}) {
		for h.wakesBefore(next.at) {
			due := h.soon.IsZero() || !h.due.IsZero() && h.due.Before(h.soon)
			of := &h.soon
			if due {
				of = &h.due
			}
			h.clock.SetTime(*of)
			*of = time.Time{}
			if due && len(h.waiting) > 0 {
				h.due = h.clock.Now().Add(time.Second)
			}
			if !due || len(h.waiting) > 0 {
				h.wake(due)
			}
		}
		h.clock.SetTime(next.at)
		next.run()
	}
}

func (h *byHand) wakesBefore(t time.Time) bool {
	return !h.due.IsZero() && h.due.Before(t) || !h.soon.IsZero() && h.soon.Before(t)
}

// changed has the waiting pods woken 200 ms after they were last.
func (h *byHand) changed() {
	if len(h.waiting) > 0 && h.soon.IsZero() {
		h.soon = h.clock.Now()
		if earliest := h.woken.Add(200 * time.Millisecond); h.soon.Before(earliest) {
			h.soon = earliest
		}
	}
}

func (h *byHand) wake(due bool) {
	h.woken = h.clock.Now()
	names, more := h.state.Wake(due)
	for _, name := range names {
		h.assign(name.Name)
	}
	if more {
		h.changed()
	}
}

func (h *byHand) arrive(name string) {
	w := &h.scenario.Consumers[0].Workloads[0]
	if name[0] == 'l' {
		w = &h.scenario.Consumers[0].Workloads[1]
	}
	h.pods[name] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("shop/" + name), Labels: w.Labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ShadowPod", UID: types.UID(name), Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: w.Requests}}}},
	}
	h.assign(name)
}

func (h *byHand) assign(name string) {
	pod, namespace := h.pods[name], namespaceOf(&h.scenario.Consumers[0], &h.scenario.Consumers[0].Workloads[0])
	criteria, err := h.policies.CriteriaOf(h.t.Context(), pod, namespace)
	require.NoError(h.t, err)
	d := h.state.Assume(criteria.Pod(pod, namespace), criteria.Policy)
	require.NoError(h.t, d.Err)
	if d.VirtualNode == "" {
		h.waiting[name] = true
		if h.due.IsZero() {
			h.due = h.clock.Now().Add(time.Second)
		}
		return
	}
	delete(h.waiting, name)
	h.placed[name], h.used[d.Provider] = place{d.Provider, h.clock.Now()}, true
	pod = pod.DeepCopy()
	pod.Labels[v1alpha1.ProviderLabel], pod.Labels[v1alpha1.VirtualNodeLabel] = d.Provider, d.VirtualNode
	pod.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: h.clock.Now().Format(time.RFC3339Nano)}
	h.pods[name] = pod
	h.state.ObserveAssignmentWritten(pod.UID)
	h.state.ObserveAssigned(pod, scheduler.Place{Provider: d.Provider, VirtualNode: d.VirtualNode})
}

func (h *byHand) end(name string) {
	pod := h.pods[name].DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	require.NotEmpty(h.t, h.placed[name], fmt.Sprintf("%s has ended before it was placed", name))
	h.state.ObserveEnded(pod, placement.AssignedTo(pod))
	h.state.ObserveGone(types.NamespacedName{Namespace: "shop", Name: name}, pod.UID)
	h.changed()
}
