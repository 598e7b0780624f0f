package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Seed 71608 of the histories: a VirtualNode is deleted while the broker's API server is unreachable. The API server
// comes back and soon becomes unreachable again. The pod leaves 46 s after the end of the deletion, as soon as there is
// a leader.
func TestWhatIsDoneWhileTheAPIServerIsAwayIsNoticedLater(t *testing.T) {
	began := time.Now()
	after := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	before, left := pod("shop", "web", corev1.PodRunning), pod("shop", "web", corev1.PodRunning)
	before.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "p0-a", v1alpha1.ProviderLabel: "p0"}
	move := []Change{{At: after(92.7), Before: before, After: left}}
	part := Fault{Kind: "part", Provider: "p0", From: after(43.2), Until: after(46.4)}
	r := &Record{
		Began: began, Providers: []*Provider{{ID: "p0", Slices: []Slice{{VirtualNode: "p0-a"}}}},
		Times: Times{Noticed: 40 * time.Second}, Faults: []Fault{part},
	}
	assert.Len(t, r.judgeMoves(move, nil), 1, "nothing kept the broker from it")
	r.Faults = []Fault{
		{Kind: "home hangs", From: after(64.3), Until: after(92.6)}, part, {Kind: "home refuses", From: after(35.7), Until: after(62)},
	}
	assert.Empty(t, r.judgeMoves(move, nil))
	move[0].At = after(131)
	assert.Len(t, r.judgeMoves(move, nil), 1, "it had time when the API server was back")
}

func TestNoPodIsAssignedToAProviderThatIsClosed(t *testing.T) {
	began := time.Now()
	after := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	provider := func(spec v1alpha1.ProviderClusterSpec) *v1alpha1.ProviderCluster {
		return &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "p0"}, Spec: spec}
	}
	pending, assigned := pod("shop", "web", corev1.PodPending), pod("shop", "web", corev1.PodPending)
	assigned.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "p0-a", v1alpha1.ProviderLabel: "p0"}
	r := &Record{
		Began: began, Ended: after(300), Providers: []*Provider{{ID: "p0", Slices: []Slice{{VirtualNode: "p0-a"}}}},
		Times: Times{Noticed: 40 * time.Second},
	}
	at := func(seconds int) []string {
		return r.judgeAssignments([]Change{{At: after(seconds), Before: pending, After: assigned}})
	}
	open := provider(v1alpha1.ProviderClusterSpec{})
	for _, closed := range []v1alpha1.ProviderClusterSpec{{Enabled: ptr.To(false)}, {Cordoned: true}, {Drain: true}} {
		r.Home.ProviderClusters = []Change{
			{At: after(0), After: open},
			{At: after(10), Before: open, After: provider(closed)},
			{At: after(20), Before: provider(closed), After: provider(closed)},
			{At: after(100), Before: provider(closed), After: open},
			{At: after(200), Before: open, After: provider(closed)},
		}
		assert.Empty(t, at(5))
		assert.Empty(t, at(45), "it may not be noticed yet")
		assert.Len(t, at(55), 1)
		assert.Empty(t, at(150))
		assert.Len(t, at(250), 1)
	}
}

// Seed 64682 of the histories: a pod starts at its provider while its virtual kubelet is down, and is drained there. It
// is Pending here all the time, and leaves once the provider shows that it does not run.
func TestARunThatIsNotShownDoesNotProlongPending(t *testing.T) {
	began := time.Now()
	after := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	before, left := pod("shop", "web", corev1.PodPending), pod("shop", "web", corev1.PodPending)
	shown := pod("shop", "web", corev1.PodRunning)
	for _, p := range []*corev1.Pod{before, shown} {
		p.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "p0-a", v1alpha1.ProviderLabel: "p0"}
		p.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: after(11.6).Format(time.RFC3339Nano)}
	}
	r := &Record{
		Began: began, Providers: []*Provider{{ID: "p0", Slices: []Slice{{VirtualNode: "p0-a"}}}},
		Times: Times{ProbeInterval: time.Second, PendingTimeout: 44 * time.Second},
	}
	move := []Change{{At: after(55.7), Before: before, After: left}}
	ended := run{span: span{after(33.5), after(51.3)}, provider: "p0"}
	assert.Empty(t, r.judgeMoves(move, []run{ended}))
	assert.Len(t, r.judgeMoves(move, []run{{span: span{after(33.5), after(90)}, provider: "p0"}}), 1, "it runs")
	seen := append([]Change{{At: after(40), Before: before, After: shown}}, move...)
	assert.Len(t, r.judgeMoves(seen, []run{ended}), 1, "its virtual kubelet showed that it ran")
}

// Seed 710 of chaos: the API server of a provider is restarted, and answers 2 s before the restart has ended.
func TestAProviderThatIsBeingRestartedMayAnswer(t *testing.T) {
	began := time.Now()
	after := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	marked, unmarked := pod("shop", "web", corev1.PodRunning), pod("shop", "web", corev1.PodRunning)
	for _, p := range []*corev1.Pod{marked, unmarked} {
		p.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "p0-a", v1alpha1.ProviderLabel: "p0"}
	}
	marked.Annotations = map[string]string{v1alpha1.UnreachableAnnotation: "2026-11-27T19:36:08Z"}
	r := &Record{
		Began: began, Ended: after(300), Providers: []*Provider{{ID: "p0", Slices: []Slice{{VirtualNode: "p0-a"}}}},
		Times:  Times{Noticed: 30 * time.Second},
		Faults: []Fault{{Kind: "provider refuses", Provider: "p0", From: after(66), Ending: after(99), Until: after(106)}},
	}
	at := func(seconds int) []string {
		return r.judgeAssignments([]Change{{At: after(seconds), Before: marked, After: unmarked}})
	}
	assert.Len(t, at(98), 1)
	assert.Empty(t, at(104))
	r.Faults[0].Ending = time.Time{}
	assert.Len(t, at(104), 1)
}
