package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAPodThatIsRefusedIsTriedLessAndLess(t *testing.T) {
	began := time.Now()
	after := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	r := &Record{
		Began: began, Providers: []*Provider{{ID: "p0", Slices: []Slice{{VirtualNode: "a"}, {VirtualNode: "b"}}}},
		Times: Times{RefusalMemory: 20 * time.Second, PendingTimeout: 40 * time.Second},
	}
	// tried assigns a pod at each of the times. The pod is refused 2 s later, and leaves another second later.
	type try struct {
		at          string
		from        int
		startsFirst bool
	}
	tried := func(tries ...try) []string {
		var record []Change
		before := pod("shop", "web", corev1.PodPending)
		add := func(seconds int, now *corev1.Pod) {
			record = append(record, Change{At: after(seconds), Before: before, After: now})
			before = now
		}
		for _, one := range tries {
			assigned := pod("shop", "web", corev1.PodPending)
			assigned.Labels = map[string]string{v1alpha1.ProviderLabel: "p0", v1alpha1.VirtualNodeLabel: one.at}
			add(one.from, assigned)
			if one.startsFirst {
				assigned = assigned.DeepCopy()
				assigned.Status.Phase = corev1.PodRunning
				add(one.from+1, assigned)
				assigned = assigned.DeepCopy()
				assigned.Status.Phase = corev1.PodPending
			}
			refused := assigned.DeepCopy()
			refused.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodConditionType(v1alpha1.ConditionRefusedPrefix + one.at), Status: corev1.ConditionTrue,
			}}
			add(one.from+2, refused)
			left := refused.DeepCopy()
			left.Labels = nil
			add(one.from+3, left)
		}
		return r.judgeTries(record)
	}
	assert.Empty(t, tried(try{at: "a"}, try{at: "b", from: 4}, try{at: "a", from: 23}, try{at: "a", from: 66}))
	assert.Len(t, tried(try{at: "a"}, try{at: "a", from: 15}), 1, "within 20 s of the first")
	assert.Len(t, tried(try{at: "a"}, try{at: "a", from: 23}, try{at: "a", from: 56}), 1, "within 40 s of the second")
	assert.Len(t, tried(try{at: "a"}, try{at: "b", from: 4}, try{at: "a", from: 23}, try{at: "b", from: 50}), 1,
		"the delay of the second is for all")
	assert.Empty(t, tried(try{at: "a"}, try{at: "a", from: 23, startsFirst: true}, try{at: "a", from: 46}), "it has started meanwhile")
	r.Faults = []Fault{{Kind: "drain", Provider: "p0", From: began, Until: after(200)}}
	assert.Empty(t, tried(try{at: "a"}, try{at: "a", from: 5}), "it may leave for the drain")
}
