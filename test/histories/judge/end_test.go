package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

func TestAConsumerShowsItsPodsAsTheyAre(t *testing.T) {
	c := &Consumer{ID: "consumer1"}
	for _, name := range []string{"web", "late", "lost"} {
		c.Pods = append(c.Pods, Change{At: time.Now(), After: pod("shop", name, corev1.PodRunning)})
	}
	home := []*corev1.Pod{
		pod("shop-consumer1", "web", corev1.PodRunning), pod("shop-consumer1", "late", corev1.PodPending),
		pod("shop-consumer1", "left", corev1.PodRunning), pod("shop", "other", corev1.PodRunning),
	}
	assert.Equal(t, []string{
		"late is shown Running (ready: false) in consumer1 and is Pending (ready: false)",
		"lost of consumer1 is not in the broker's cluster",
		"the broker's cluster has a pod left that is not in consumer1",
	}, c.judgeShown(home))
}

// Kubernetes marks a Node as lost if no broker updates it. A Node that is updated is Ready.
func TestTheNodeMayBeNotReadyWithoutABrokerOnly(t *testing.T) {
	began := time.Now()
	lost := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-broker"}}
	lost.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	r := &Record{Began: began, Node: lost.Name, Home: Cluster{Nodes: []Change{{At: began.Add(60 * time.Second), After: lost}}}}
	assert.NotEmpty(t, r.judgeNode())
	r.Faults = []Fault{{Kind: "all brokers are away for long", From: began.Add(30 * time.Second), Until: began.Add(2 * time.Minute)}}
	assert.NotEmpty(t, r.judgeNode(), "it was away for 30 s only")
	r.Faults[0].From = began
	assert.Empty(t, r.judgeNode())
}
