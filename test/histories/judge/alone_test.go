package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestPodsThatMustBeAloneAreNotAssignedTogether(t *testing.T) {
	lone := func(name, provider string, phase corev1.PodPhase) *corev1.Pod {
		p := pod("ns", name, phase)
		p.UID = types.UID(name)
		p.Labels = map[string]string{AloneLabel: "true"}
		if provider != "" {
			p.Labels[v1alpha1.ProviderLabel], p.Labels[v1alpha1.VirtualNodeLabel] = provider, provider
		}
		return p
	}
	at := time.Unix(1, 0)
	judged := func(changes ...Change) []string {
		return (&Record{Began: at, Home: Cluster{Pods: changes}}).judgeAlone()
	}
	one := Change{At: at, Before: lone("one", "", ""), After: lone("one", "p0", corev1.PodRunning)}
	two := Change{At: at, Before: lone("two", "", ""), After: lone("two", "p0", "")}
	assert.Len(t, judged(one, two), 1)
	assert.Empty(t, judged(one, Change{At: at, After: lone("two", "p1", "")}), "at another provider")
	assert.Empty(t, judged(one, Change{At: at, Before: one.After, After: lone("one", "p0", corev1.PodSucceeded)}, two), "it has ended")
	assert.Empty(t, judged(one, Change{At: at, Before: one.After}, two), "it is gone")
	another := lone("two", "p0", "")
	delete(another.Labels, AloneLabel)
	assert.Empty(t, judged(one, Change{At: at, After: another}))
}
