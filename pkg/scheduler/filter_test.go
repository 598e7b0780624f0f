package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

func TestFilters(t *testing.T) {
	full := func(s *State, virtualNode string, r resources.Amounts) {
		s.Assign(Assignment{UID: "other", Place: Place{"q", virtualNode}, Requests: r})
	}
	for name, tc := range map[string]struct {
		provider Provider
		state    func(*State)
		pod      *Pod
		policy   *Policy
		reason   string
	}{
		"a provider that nothing speaks against fits": {provider: ready("q"), reason: "fits"},
		"a disabled one does not": {
			provider: ready("q", func(p *Provider) { p.Enabled = false }), reason: "disabled",
		},
		"nor one that is not ready": {
			provider: ready("q", func(p *Provider) { p.Ready = false }), reason: "not ready",
		},
		"nor one that has to clean up first": {
			provider: ready("q", func(p *Provider) { p.Recovering = true }), reason: "recovering",
		},
		"nor a cordoned one": {
			provider: ready("q", func(p *Provider) { p.Cordoned = true }), reason: "cordoned",
		},
		"nor one that is being drained": {
			provider: ready("q", func(p *Provider) { p.Draining = true }), reason: "draining",
		},
		"nor the cluster that the pod came from": {
			provider: ready("q"), pod: asking(func(p *Pod) { p.Consumer = "q" }), reason: "is the pod's origin",
		},
		"nor one to which the namespace is not offloaded": {
			provider: ready("q"), pod: asking(func(p *Pod) { p.Namespace = "other" }), reason: "namespace not offloaded",
		},
		"nor one to which no namespace is offloaded": {
			provider: ready("q", func(p *Provider) { p.Namespaces = nil }), reason: "namespace not offloaded",
		},
		"nor one that the policy does not name": {
			provider: ready("q"), policy: &Policy{Named: sets.New("r")}, reason: "not named by the policy",
		},
		"a policy that names none takes none": {
			provider: ready("q"), policy: &Policy{Named: sets.New[string]()}, reason: "not named by the policy",
		},
		"one that the policy names fits": {
			provider: ready("q"), policy: &Policy{Named: sets.New("q")}, reason: "fits",
		},
		"nor one that its consumer left out": {
			provider: ready("q"), pod: asking(selecting(false, "q")), reason: "not selected by its consumer",
		},
		"one that its consumer did not leave out fits": {
			provider: ready("q"), pod: asking(selecting(false, "r")), reason: "fits",
		},
		"nor one that is not among the only ones": {
			provider: ready("q"), pod: asking(selecting(true, "r")), reason: "not selected by its consumer",
		},
		"nor any, if there are none": {
			provider: ready("q"), pod: asking(selecting(true)), reason: "not selected by its consumer",
		},
		"one of the only ones fits": {
			provider: ready("q"), pod: asking(selecting(true, "q")), reason: "fits",
		},
		"of two selections both count": {
			provider: ready("q"), pod: asking(selecting(true, "q"), selecting(false, "q")), reason: "not selected by its consumer",
		},
		"a selection does not replace the policy": {
			provider: ready("q"), pod: asking(selecting(true, "q")), policy: &Policy{Named: sets.New("r")},
			reason: "not named by the policy",
		},
		"one that grants nothing does not": {provider: ready("q", granted()), reason: "nothing granted"},
		"nor one whose only slice is not ready": {
			provider: ready("q", granted(Slice{VirtualNode: "q", Filter: verdict.NotReady})), reason: "not ready",
		},
		"nor one whose only slice is being deleted": {
			provider: ready("q", granted(Slice{VirtualNode: "q", Filter: verdict.Terminating})), reason: "VirtualNode terminating",
		},
		"nor one whose only slice shares its name": {
			provider: ready("q", granted(Slice{VirtualNode: "q", Filter: verdict.NameNotUnique})),
			reason:   "VirtualNode name not unique",
		},
		"nor one whose only slice is another node's": {
			provider: ready("q", granted(Slice{VirtualNode: "q", Filter: verdict.ServesAnotherNode})),
			reason:   "virtual kubelet serves another node",
		},
		"of slices that take no pod, the reason is that of the one that may soon": {
			provider: ready("q", granted(
				Slice{VirtualNode: "q1", Filter: verdict.NotReady}, Slice{VirtualNode: "q2", Filter: verdict.Terminating},
			)),
			reason: "not ready",
		},
		"a refusal is remembered": {
			provider: ready("q"),
			pod:      asking(func(p *Pod) { p.Refused = map[string]time.Time{"q": now.Add(time.Second)} }),
			reason:   "in back-off",
		},
		"for its time": {
			provider: ready("q"),
			pod:      asking(func(p *Pod) { p.Refused = map[string]time.Time{"q": now} }),
			reason:   "fits",
		},
		"a refusal by another slice is not this one's": {
			provider: ready("q"),
			pod:      asking(func(p *Pod) { p.Refused = map[string]time.Time{"r": now.Add(time.Hour)} }),
			reason:   "fits",
		},
		"refusals by too many slices are this one's, too": {
			provider: ready("q"),
			pod:      asking(func(p *Pod) { p.Refused = map[string]time.Time{"r": now, "": now.Add(time.Second)} }),
			reason:   "in back-off",
		},
		"unless it has its own": {
			provider: ready("q"),
			pod:      asking(func(p *Pod) { p.Refused = map[string]time.Time{"q": now, "": now.Add(time.Second)} }),
			reason:   "fits",
		},
		"what is assigned is not free": {
			provider: ready("q"),
			state:    func(s *State) { full(s, "q", resources.Amounts{corev1.ResourceCPU: 7001}) },
			reason:   "insufficient cpu",
		},
		"the last of what is granted is": {
			provider: ready("q"),
			state:    func(s *State) { full(s, "q", resources.Amounts{corev1.ResourceCPU: 7000}) },
			reason:   "fits",
		},
		"memory counts like cpu": {
			provider: ready("q"),
			state:    func(s *State) { full(s, "q", resources.Amounts{corev1.ResourceMemory: 15*gi + 1}) },
			reason:   "insufficient memory",
		},
		"cpu and memory that are not granted are none": {
			provider: ready("q", granted(Slice{VirtualNode: "q"})), reason: "insufficient cpu",
		},
		"what the pod does not ask for need not be there": {
			provider: ready("q", granted(Slice{VirtualNode: "q"})),
			pod:      asking(func(p *Pod) { p.Requests = nil }),
			reason:   "fits",
		},
		"a slice that is overfull takes a pod that asks for nothing of that": {
			provider: ready("q"),
			state:    func(s *State) { full(s, "q", resources.Amounts{corev1.ResourceCPU: 9000}) },
			pod:      asking(func(p *Pod) { p.Requests = resources.Amounts{corev1.ResourceMemory: gi} }),
			reason:   "fits",
		},
		"an extended resource that is not granted is none": {
			provider: ready("q"), pod: asking(func(p *Pod) { p.Requests[gpu] = 1 }),
			reason: "insufficient nvidia.com/gpu",
		},
		"ephemeral storage that is not granted is none": {
			provider: ready("q"), pod: asking(func(p *Pod) { p.Requests[corev1.ResourceEphemeralStorage] = 1 }),
			reason: "insufficient ephemeral-storage",
		},
		"and limited where it is": {
			provider: ready("q", func(p *Provider) { p.Slices[0].Granted[corev1.ResourceEphemeralStorage] = gi }),
			pod:      asking(func(p *Pod) { p.Requests[corev1.ResourceEphemeralStorage] = 2 * gi }),
			reason:   "insufficient ephemeral-storage",
		},
		"the number of pods is a resource": {
			provider: ready("q", func(p *Provider) { p.Slices[0].Granted[corev1.ResourcePods] = 1 }),
			state:    func(s *State) { full(s, "q", resources.Amounts{corev1.ResourcePods: 1}) },
			reason:   "too many pods",
		},
		"room that is taken without a pod leaves the number of pods": {
			provider: ready("q", func(p *Provider) { p.Slices[0].Granted[corev1.ResourcePods] = 1 }),
			state:    func(s *State) { full(s, "q", resources.Amounts{corev1.ResourceCPU: 1000}) },
			reason:   "fits",
		},
		"of several slices, the reason is that of the one that failed last": {
			provider: ready("q", granted(
				Slice{VirtualNode: "q1", Filter: verdict.NotReady}, sliceOf("q2", 500, gi), sliceOf("q3", 2000, 1))),
			reason: "insufficient memory",
		},
		"the policy's filter filters": {
			provider: ready("q"), policy: &Policy{Filter: filterOf(t, "provider.id == 'r'")}, reason: "policy filter",
		},
		"and so does the pod's": {
			provider: ready("q"), pod: asking(func(p *Pod) { p.Expression = filterOf(t, "provider.id == 'r'") }),
			reason: "pod filter",
		},
		"a filter that fails keeps nothing": {
			provider: ready("q"), policy: &Policy{Filter: filterOf(t, "provider.labels['a'] == 'b'")},
			reason: "filter error",
		},
		"a score that fails keeps nothing either": {
			provider: ready("q"), policy: &Policy{Score: scoreOf(t, "double(provider.labels['a'])")},
			reason: "filter error",
		},
		"unless it has no weight": {
			provider: ready("q"),
			policy:   &Policy{Score: scoreOf(t, "double(provider.labels['a'])"), Weights: []score.Weight{{Plugin: "free", Weight: 1}}},
			reason:   "fits",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.provider)
			if tc.state != nil {
				tc.state(s)
			}
			if tc.pod == nil {
				tc.pod = asking()
			}
			d := decide(s, tc.pod, tc.policy)
			require.Len(t, d.Verdicts, 1)
			require.Equal(t, tc.reason, d.Verdicts[0].Reason())
			if tc.reason == "fits" {
				require.Equal(t, "q", d.Provider)
				require.Equal(t, "q", d.Verdicts[0].VirtualNode)
			} else {
				require.Empty(t, d.Provider)
				require.Empty(t, d.Verdicts[0].VirtualNode)
				require.Nil(t, d.Verdicts[0].Scores)
			}
		})
	}
}

func TestSliceOfTheProvider(t *testing.T) {
	mixed := ready("q", granted(gpuSliceOf("a-gpu", 8000, 16*gi, 2), sliceOf("b", 4000, 16*gi), sliceOf("c", 4000, 16*gi)))
	withGPU := func(p *Pod) { p.Requests[gpu] = 1 }
	for name, tc := range map[string]struct {
		assigned map[string]int64
		pod      *Pod
		slice    string
	}{
		"a pod that asks for a GPU goes where one is": {pod: asking(withGPU), slice: "a-gpu"},
		"one that does not leaves it to others":       {pod: asking(), slice: "b"},
		"the slice with more room comes first":        {assigned: map[string]int64{"b": 1000}, pod: asking(), slice: "c"},
		"when the plain slices are full, the GPU slice fills up": {
			assigned: map[string]int64{"b": 4000, "c": 3500}, pod: asking(), slice: "a-gpu",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(mixed)
			for virtualNode, milliCPU := range tc.assigned {
				s.Assign(Assignment{
					UID: typesUID("at-" + virtualNode), Place: Place{"q", virtualNode},
					Requests: resources.Amounts{corev1.ResourceCPU: milliCPU},
				})
			}
			d := decide(s, tc.pod, nil)
			require.Equal(t, "q", d.Provider)
			require.Equal(t, tc.slice, d.VirtualNode)
			require.Contains(t, d.Message(), "Assigned to provider q, slice "+tc.slice+": ")
		})
	}
}

func TestAFailedExpressionIsAnErrorWhenItFailsEverywhere(t *testing.T) {
	policy := &Policy{Filter: filterOf(t, "provider.attributes['region'] == 'eu'")}

	d := decide(stateOf(ready("q"), ready("r")), asking(), policy)
	require.ErrorIs(t, d.Err, cel.ErrExpression)
	require.ErrorContains(t, d.Err, "no such key: region")
	require.ErrorContains(t, d.Err, "'region' in provider.attributes")
	require.Equal(t, "0/2 provider clusters fit: 2 filter error", d.Unschedulable())

	d = decide(stateOf(ready("q"), ready("r", attributes("region", "eu"))), asking(), policy)
	require.NoError(t, d.Err)
	require.Equal(t, "r", d.Provider)
	require.Contains(t, d.Verdicts[0].Detail, "no such key: region")

	d = decide(stateOf(ready("q", func(p *Provider) { p.Enabled = false })), asking(), policy)
	require.NoError(t, d.Err, "it was asked nowhere")
}

func TestACostlyExpressionIsGivenUp(t *testing.T) {
	costly := filterOf(t, "provider.id < 'd' && [1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9].all(b, "+
		"[1, 2, 3, 4, 5, 6, 7, 8, 9].all(c, a + b + c > 0)))")
	d := decide(stateOf(ready("a"), ready("b"), ready("x"), ready("c"), ready("y")), asking(), &Policy{Filter: costly})
	var filters []verdict.Filter
	for _, v := range d.Verdicts {
		filters = append(filters, v.Filter)
	}
	require.Equal(t, []verdict.Filter{verdict.Failed, verdict.Failed, verdict.Failed, verdict.Failed, verdict.Failed}, filters,
		"y would be kept out, but is not asked")
	require.ErrorIs(t, d.Err, cel.ErrExpression)
	require.ErrorContains(t, d.Err, "cost limit exceeded")
}

func TestLongAnnotationsAreNotSeen(t *testing.T) {
	pod := asking(func(p *Pod) {
		p.Annotations = map[string]string{"long": strings.Repeat("x", 1025), "short": strings.Repeat("x", 1024)}
	})
	policy := &Policy{Filter: filterOf(t, "'short' in pod.annotations && !('long' in pod.annotations)")}
	require.Equal(t, "q", decide(stateOf(ready("q")), pod, policy).Provider)
	require.Len(t, pod.Annotations, 2)
}

func selecting(only bool, ids ...string) func(*Pod) {
	return func(p *Pod) { p.Selections = append(p.Selections, Selection{Only: only, IDs: sets.New(ids...)}) }
}
