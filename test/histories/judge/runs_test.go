package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Seed 6133 of the histories: the broker began to move a pod 1 ms after the pod had completed at the provider, and 20
// ms before its virtual kubelet would have reported that. A virtual kubelet checks whether the pod has ended before it
// deletes the ShadowPod.
func TestAPodMayCompleteUnseenBeforeItIsMoved(t *testing.T) {
	began := time.Now()
	after := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	at := func(provider string, phase corev1.PodPhase) *corev1.Pod {
		p := pod("shop", "job", phase)
		p.UID, p.Labels = "job", map[string]string{v1alpha1.ProviderLabel: provider}
		return p
	}
	local := at("p0", corev1.PodRunning)
	remote := func(seconds float64, before, now corev1.PodPhase, run types.UID) Change {
		b, a := at("", before), at("", now)
		b.UID, a.UID = run, run
		b.Annotations, a.Annotations = map[string]string{PodUID: "job"}, map[string]string{PodUID: "job"}
		return Change{At: after(seconds), Before: b, After: a}
	}
	p0 := &Provider{ID: "p0", Slices: []Slice{{VirtualNode: "p0-a"}}, Cluster: Cluster{Pods: []Change{
		remote(10, corev1.PodPending, corev1.PodRunning, "run-1"), remote(20, corev1.PodRunning, corev1.PodSucceeded, "run-1"),
		remote(60, corev1.PodPending, corev1.PodRunning, "run-2"),
	}}}
	r := &Record{Began: began, Providers: []*Provider{p0}}
	judged := func(shadowDeleted float64, changes ...Change) []string {
		shadow := remote(0, "", "", "shadow").After
		p0.ShadowPods = []Change{{At: after(9), After: shadow}, {At: after(shadowDeleted), Before: shadow}}
		return r.judgeRuns(append([]Change{{At: after(1), After: local}}, changes...), r.runs()[local.UID])
	}
	left := Change{At: after(19), Before: local, After: at("", corev1.PodRunning)}
	succeeded := Change{At: after(20.02), Before: local, After: at("p0", corev1.PodSucceeded)}
	again := Change{At: after(59), Before: at("", corev1.PodPending), After: at("p0", corev1.PodPending)}

	assert.Empty(t, judged(19.9, left, again), "its ShadowPod was deleted before")
	assert.Empty(t, judged(21.9, left, again), "its completion was not reported yet")
	assert.Len(t, judged(22.1, left, again), 1, "its completion was to be seen by who deleted the ShadowPod")
	assert.Len(t, judged(59, again), 1, "it did not leave")
	assert.Len(t, judged(20.1, succeeded, left, again), 1, "it was reported")
}

// Seed 65520 of the histories: a provider hung, answered one probe, and read nothing then. One answer ends no outage.
func TestASingleAnswerIsNoEndOfAnOutage(t *testing.T) {
	began := time.Now()
	after := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	for name, tc := range map[string]struct {
		again   int // When the second fault begins; the first one is over after 50 s.
		answers []int
		want    bool
	}{
		"a fault without a gap":           {50, nil, true},
		"an answer in a short gap":        {57, []int{55}, true},
		"two answers in a short gap":      {57, []int{51, 56}, false},
		"an answer in a fault":            {57, []int{30}, false},
		"answers in a gap that is longer": {70, []int{51, 56, 61, 66}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Provider{ID: "p0", Cluster: Cluster{Answers: []Answer{{At: began, By: "broker-1", Code: 200}}}}
			for _, at := range tc.answers {
				p.Answers = append(p.Answers, Answer{At: after(at), By: "broker-1", Code: 200, Probe: true})
			}
			r := &Record{
				Began: began, Providers: []*Provider{p},
				Faults: []Fault{
					{Kind: "provider hangs", Provider: "p0", From: began, Until: after(50)},
					{Kind: "provider reads nothing", Provider: "p0", From: after(tc.again), Until: after(200)},
				},
				Times: Times{FailoverAfter: time.Minute, ProbeInterval: 5 * time.Second, Noticed: 40 * time.Second, Flap: 16 * time.Second},
			}
			assert.Equal(t, tc.want, r.mayFailOver("p0", after(65)))
		})
	}
}
