package nodeagent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/ports"
)

// replicas returns an agent with two pods of one Deployment, and their workers.
func replicas() (a *Agent, one, two *podWorker) {
	a = New(Config{Ports: ports.NewPool()})
	workers := map[string]*podWorker{}
	for _, name := range []string{"broker-5d7f-one", "broker-5d7f-two"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), Labels: map[string]string{"pod-template-hash": "5d7f"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "broker-5d7f", Controller: ptr.To(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		}
		w := newPodWorker(a, pod)
		a.pods[pod.UID], workers[name] = w, w
	}
	return a, workers["broker-5d7f-one"], workers["broker-5d7f-two"]
}

func TestKillHoldsAComponentOrOnePod(t *testing.T) {
	for name, c := range map[string]struct {
		do       func(a *Agent)
		one, two bool // held
	}{
		"a component holds all of its pods":              {func(a *Agent) { a.Kill("broker") }, true, true},
		"a pod holds no other":                           {func(a *Agent) { a.Kill("broker-5d7f-one") }, true, false},
		"a restart of the component releases everything": {func(a *Agent) { a.Kill("broker-5d7f-one"); a.Restart("broker") }, false, false},
		"a restart of one pod leaves the other held":     {func(a *Agent) { a.Kill("broker"); a.Restart("broker-5d7f-two") }, true, false},
		"a pod that is gone is not held":                 {func(a *Agent) { a.Kill("broker-5d7f-one"); a.forget(onePod(a)) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, one, two := replicas()
			c.do(a)
			assert.Equal(t, []bool{c.one, c.two}, []bool{a.isHeld(one), a.isHeld(two)})
		})
	}
}

func onePod(a *Agent) *corev1.Pod { return a.pods["broker-5d7f-one"].pod }

func TestComponentsNameTheirPods(t *testing.T) {
	a, _, _ := replicas()
	got := a.Components()
	require.Len(t, got, 1)
	assert.ElementsMatch(t, []string{"broker-5d7f-one", "broker-5d7f-two"}, got["broker"])
}

// Two replicas on one loopback get different ports, and are probed at these.
func TestReplicasHavePortsOfTheirOwn(t *testing.T) {
	a, _, _ := replicas()
	image := Image{Ports: func(command []string) []Port {
		assert.Equal(t, []string{"/bin/it", "broker"}, command)
		return []Port{
			{Argument: "--listen=%d", Container: 10250},
			{Argument: "--health=127.0.0.1:%d", Container: 8081},
			{Argument: "--listen=%d", Container: 10255},
		}
	}}
	args1, ports1, err := a.ownPorts(image, []string{"/bin/it", "broker"})
	require.NoError(t, err)
	_, ports2, err := a.ownPorts(image, []string{"/bin/it", "broker"})
	require.NoError(t, err)
	assert.NotEqual(t, ports1, ports2)
	require.Len(t, args1, 2)
	assert.Equal(t, ports1[10250], ports1[10255])

	c := &container{
		spec: corev1.Container{
			Name: "main", Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: 8081}, {Name: "own", ContainerPort: 9}},
		},
		ports: ports1,
	}
	for port, want := range map[intstr.IntOrString]int{
		intstr.FromString("health"): ports1[8081],
		intstr.FromInt32(8081):      ports1[8081],
		intstr.FromString("own"):    9,
	} {
		got, err := portNumber(c, port)
		require.NoError(t, err)
		assert.Equal(t, want, got, port.String())
	}
	_, err = portNumber(c, intstr.FromString("none"))
	assert.ErrorContains(t, err, `no port "none"`)
}

func TestHostname(t *testing.T) {
	assert.Equal(t, "broker-5d7f-one", hostname("broker-5d7f-one"))
	long := "a123456789012345678901234567890123456789012345678901234567890-.x"
	assert.Equal(t, long[:61], hostname(long))
}

// kube-controller-manager marks a node Unknown if its lease is renewed late. The next heartbeat undoes this.
func TestANodeIsReadyAgainAfterALateHeartbeat(t *testing.T) {
	client := fake.NewClientset()
	a := New(Config{NodeName: "broker-host", Client: client, ClientCA: authority(t)})
	require.NoError(t, a.Register(t.Context()))
	status := func() corev1.NodeStatus {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "broker-host", metav1.GetOptions{})
		require.NoError(t, err)
		return node.Status
	}
	late := status()
	late.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
	}
	_, err := client.CoreV1().Nodes().UpdateStatus(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "broker-host"}, Status: late}, metav1.UpdateOptions{})
	require.NoError(t, err)

	a.postReady(t.Context())
	require.Len(t, status().Conditions, 2)
	require.Equal(t, corev1.ConditionTrue, status().Conditions[0].Status)
	require.Equal(t, late.Capacity, status().Capacity)
	client.ClearActions()
	a.postReady(t.Context())
	require.Len(t, client.Actions(), 1, "it is Ready: nothing to write")
}
