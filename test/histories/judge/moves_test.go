package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Seed 71608 of the histories: a VirtualNode is deleted while the broker's API server is away, which is so again soon
// after it came back. The pod leaves 46 s after the end of the deletion, as soon as there is a leader.
func TestWhatIsDoneWhileTheAPIServerIsAwayIsNoticedLater(t *testing.T) {
	began := time.Now()
	after := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	before, left := pod("shop", "web", corev1.PodRunning), pod("shop", "web", corev1.PodRunning)
	before.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "p0-a", v1alpha1.ProviderLabel: "p0"}
	move := []Change{{At: after(92.7), Before: before, After: left}}
	part := Fault{Kind: "part", Provider: "p0", From: after(43.2), Until: after(46.4)}
	r := &Record{Began: began, Providers: []*Provider{{ID: "p0", VirtualNode: "p0-a"}}, Times: Times{Noticed: 40 * time.Second}, Faults: []Fault{part}}
	assert.Len(t, r.judgeMoves(move, nil), 1, "nothing kept the broker from it")
	r.Faults = []Fault{
		{Kind: "home hangs", From: after(64.3), Until: after(92.6)}, part, {Kind: "home refuses", From: after(35.7), Until: after(62)},
	}
	assert.Empty(t, r.judgeMoves(move, nil))
	move[0].At = after(131)
	assert.Len(t, r.judgeMoves(move, nil), 1, "it had time when the API server was back")
}
