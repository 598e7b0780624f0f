package judge

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// costs builds the requests of brokers, relative to a start time.
type costs struct{ began time.Time }

func (c costs) after(took time.Duration) time.Time { return c.began.Add(took) }

// request returns a request that takes a millisecond.
func (c costs) request(at time.Duration, verb, kind, name string) Request {
	return Request{
		At: c.after(at), Until: c.after(at + time.Millisecond), By: "broker-1", Verb: verb, Kind: kind,
		Name: types.NamespacedName{Namespace: "shop", Name: name},
	}
}

func TestAProviderIsAskedWithAFewLists(t *testing.T) {
	c := costs{time.Now()}
	check := func(at time.Duration, pods int) (lists []Request) {
		for i := range pods {
			for _, kind := range []string{"ShadowPod", "Pod"} {
				list := c.request(at+time.Duration(len(lists))*time.Millisecond, List, kind, fmt.Sprint("web-", i))
				list.Deadline = c.after(at + 10*time.Second)
				lists = append(lists, list)
			}
		}
		return lists
	}
	r := &Record{Began: c.began}
	judged := func(lists ...Request) []string {
		return r.judgeQuestions(&Provider{ID: "p0", Cluster: Cluster{Requests: lists}})
	}
	assert.Empty(t, judged(check(0, fewPods)...))
	assert.Empty(t, judged(append(check(0, fewPods), check(2*fewPods*time.Millisecond, fewPods)...)...), "the next check follows at once")
	assert.Len(t, judged(check(0, fewPods+1)...), 1)
	assert.Empty(t, judged(append(check(0, fewPods), check(time.Second, fewPods)...)...))
	assert.Empty(t, judged(c.request(0, List, "ShadowPod", ""), c.request(time.Millisecond, List, "Pod", "")), "all at once")
}

func TestAProviderIsProbedOnceAnInterval(t *testing.T) {
	c := costs{time.Now()}
	r := &Record{Began: c.began, Times: Times{ProbeInterval: 5 * time.Second}}
	judged := func(each time.Duration) []string {
		p := &Provider{ID: "p0", Slices: []Slice{{VirtualNode: "p0-a"}}}
		for at := time.Duration(0); at < time.Minute; at += each {
			p.Requests = append(p.Requests, c.request(at, Probe, "", ""))
		}
		return r.judgeProbes(p)
	}
	assert.Empty(t, judged(5*time.Second))
	assert.Len(t, judged(time.Second), 1)
}

func TestAnObjectIsNotWrittenAgainAndAgain(t *testing.T) {
	c := costs{time.Now()}
	judged := func(kind string, each time.Duration) []string {
		r := &Record{Began: c.began}
		for at := time.Duration(0); at < 3*time.Minute; at += each {
			r.Home.Requests = append(r.Home.Requests, c.request(at, "patch", kind, "web"))
		}
		return r.judgeWrites()
	}
	assert.Empty(t, judged("Pod", 2*time.Second))
	assert.Len(t, judged("Pod", 500*time.Millisecond), 1)
	assert.Empty(t, judged("Lease", 500*time.Millisecond))
}

func TestAPodThatWaitsIsTriedNowAndThen(t *testing.T) {
	c := costs{time.Now()}
	bound := pod("shop", "web", corev1.PodPending)
	bound.Spec.NodeName = "liqo-broker"
	assigned := bound.DeepCopy()
	assigned.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "p0-a"}
	judged := func(each time.Duration) []string {
		r := &Record{Began: c.began, Node: "liqo-broker"}
		r.Home.Pods = []Change{{At: c.after(0), After: bound}, {At: c.after(2 * time.Minute), Before: bound, After: assigned}}
		for at := time.Second; at < 4*time.Minute; at += time.Second / 2 {
			if at >= 2*time.Minute || at%each == 0 {
				r.Home.Requests = append(r.Home.Requests, c.request(at, FromCache, "Pod", "web"))
			}
		}
		return r.judgeCosts()
	}
	assert.Empty(t, judged(30*time.Second))
	assert.Len(t, judged(time.Second/2), 1)
}

func TestTheReasonOfAPodIsNotWrittenForEachFlap(t *testing.T) {
	c := costs{time.Now()}
	r := &Record{Began: c.began, Node: "liqo-broker"}
	type written struct {
		at              int
		reason, message string
	}
	judged := func(all ...written) []string {
		before := pod("shop", "web", corev1.PodPending)
		before.Spec.NodeName = "liqo-broker"
		record := []Change{{At: c.after(0), After: before}}
		for _, w := range all {
			after := before.DeepCopy()
			after.Status.Conditions = []corev1.PodCondition{{
				Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: w.reason, Message: w.message,
			}}
			record = append(record, Change{At: c.after(time.Duration(w.at) * time.Second), Before: before, After: after})
			before = after
		}
		return r.judgeRewording(record)
	}
	assert.Empty(t, judged(written{1, "NoProviderFits", "not ready"}, written{61, "NoProviderFits", "insufficient cpu"}))
	assert.Len(t, judged(written{1, "NoProviderFits", "not ready"}, written{10, "NoProviderFits", "insufficient cpu"}), 1)
	assert.Empty(t, judged(written{1, "NoProviderFits", "not ready"}, written{10, "BackOff", "in back-off"}))
	r.Faults = []Fault{{Kind: "home loses answers", From: c.began, Until: c.after(5 * time.Second)}}
	assert.Empty(t, judged(written{1, "NoProviderFits", "not ready"}, written{2, "NoProviderFits", "insufficient cpu"}),
		"it may not know of the first")
	assert.Len(t, judged(written{6, "NoProviderFits", "not ready"}, written{7, "NoProviderFits", "insufficient cpu"}), 1)
}
