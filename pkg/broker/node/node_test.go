package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// nodeWith is the Node of a broker to which two providers granted so many CPUs, and whose providers are reachable or not.
func nodeWith(t *testing.T, kube kubernetes.Interface, cpus int64, reachable bool) *Node {
	t.Helper()
	known := belief.New(belief.Config{Clock: clock.RealClock{}, SuspicionWindow: time.Minute, ProbeInterval: time.Second})
	for _, id := range []string{"p", "q"} {
		known.SetProvider(id, belief.ProviderSpec{Enabled: true}, &v1alpha1.ProviderClusterStatus{})
		if cpus > 0 {
			known.Schedule(scheduler.Provider{ID: id, Enabled: true, Ready: true, Slices: []scheduler.Slice{
				{VirtualNode: id, Granted: resources.Amounts{corev1.ResourceCPU: cpus * 1000 / 2}},
			}})
		}
		for range 2 {
			known.ObserveProbe(id, belief.Probe{Ended: time.Now(), Answered: reachable})
		}
	}
	return New(Config{Kube: kube, Belief: known, Name: "broker", IP: "10.0.0.2", Version: "v1"})
}

// Kubernetes deletes the pods of a Node that is not Ready.
func TestANewLeaderLeavesTheNodeAsItIsWhileItSuspectsItself(t *testing.T) {
	left := nodeWith(t, nil, 8, true).forge(nil)
	foreign := left.DeepCopy()
	delete(foreign.Labels, v1alpha1.BrokerNodeLabel)
	more := left.DeepCopy()
	more.Status.Conditions = append([]corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable}}, more.Status.Conditions...)
	odd := left.DeepCopy()
	odd.Status.Conditions = odd.Status.Conditions[:1]

	for name, tc := range map[string]struct {
		there    *corev1.Node
		suspects bool
		ready    corev1.ConditionStatus
	}{
		"as it was":                 {left, true, corev1.ConditionTrue},
		"with conditions of others": {more, true, corev1.ConditionTrue},
		"as it is":                  {left, false, corev1.ConditionFalse},
		"there is none":             {nil, true, corev1.ConditionFalse},
		"it is not the broker's":    {foreign, true, corev1.ConditionFalse},
		"it has not all conditions": {odd, true, corev1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset()
			if tc.there != nil {
				kube = fake.NewClientset(tc.there)
			}
			n := nodeWith(t, kube, 0, !tc.suspects)
			first, err := n.first(t.Context())
			require.NoError(t, err)
			require.Equal(t, tc.ready, first.Status.Conditions[0].Status)
			require.Equal(t, "10.0.0.2", first.Status.Addresses[0].Address, "it is served here")
			require.Equal(t, tc.ready == corev1.ConditionTrue, first.Status.Capacity.Cpu().Value() == 8)
			n.forge(first) // The next one is forged from its conditions.
		})
	}
}
