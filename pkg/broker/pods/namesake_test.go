package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// joins has a provider with one VirtualNode join, which can be reached if it answers.
func (c *Controller) joins(id, virtualNode string, answers bool) {
	c.Belief.SetProvider(id, belief.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{virtualNode: false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	for range 2 {
		c.Belief.ObserveProbe(id, belief.Probe{Began: time.Now(), Ended: time.Now(), Answered: answers})
	}
}

// An administrator gives a slice of another provider a name that is in use.
func TestAPodStaysWhenAVirtualNodeOfItsNameJoins(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, virtualNodeOf("q", "q1"), virtualNodeOf("z", "q1"), assignedPod(corev1.PodRunning))
	c.Policies.Defaults.FailoverAfter = time.Nanosecond
	c.joins("r", "r1", true)
	c.Belief.Schedule(scheduler.Provider{
		ID: "r", Enabled: true, Ready: true, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{VirtualNode: "r1", Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
	})
	c.joins("z", "q1", false)
	for range 3 {
		pod, _ := c.reconciled(t, "pod")
		require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "its provider q answers; z does not: %v", pod.Annotations)
		require.Equal(t, "q", pod.Labels[v1alpha1.ProviderLabel])
	}
}

// The remedy of docs/operating.md: one of the two is made again under another name.
func TestAPodLeavesAVirtualNodeThatIsGoneThoughAnotherOneHasItsName(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, virtualNodeOf("q", "q2"), virtualNodeOf("z", "q1"), assignedPod(corev1.PodRunning))
	c.joins("q", "q2", true)
	c.joins("z", "q1", true)
	c.connect("q2", corev1.PodStatus{Phase: corev1.PodRunning})
	for range 5 {
		c.reconciled(t, "pod")
		c.Leaving.Check(t.Context(), "q2")
	}
	pod, _ := c.reconciled(t, "pod")
	require.NotEqual(t, [2]string{"q1", "q"}, [2]string{pod.Labels[v1alpha1.VirtualNodeLabel], pod.Labels[v1alpha1.ProviderLabel]},
		"no virtual kubelet has it, none ends it, and it is shown %s", pod.Status.Phase)
}
