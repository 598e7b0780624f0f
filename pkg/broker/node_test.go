package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// TestANewLeaderLeavesTheNodeAsItIsWhileItSuspectsItself: Kubernetes deletes the pods of a Node that is not Ready.
func TestANewLeaderLeavesTheNodeAsItIsWhileItSuspectsItself(t *testing.T) {
	cpus := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	cfg := &Config{NodeName: "broker", NodeIP: "10.0.0.1"}
	before := newBrokerNode(cfg, nil, "v1")
	before.sum = func() (corev1.ResourceList, int) { return cpus, 2 }
	left := before.forge(nil)
	foreign := left.DeepCopy()
	delete(foreign.Labels, v1alpha1.BrokerNodeLabel)
	more := left.DeepCopy()
	more.Status.Conditions = append([]corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable}}, more.Status.Conditions...)
	odd := left.DeepCopy()
	odd.Status.Conditions = odd.Status.Conditions[:1]

	for name, tc := range map[string]struct {
		there *corev1.Node
		hold  bool
		ready corev1.ConditionStatus
	}{
		"as it was":                 {left, true, corev1.ConditionTrue},
		"as others left it":         {more, true, corev1.ConditionTrue},
		"as it is":                  {left, false, corev1.ConditionFalse},
		"there is none":             {nil, true, corev1.ConditionFalse},
		"it is somebody else's":     {foreign, true, corev1.ConditionFalse},
		"it has not all conditions": {odd, true, corev1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset()
			if tc.there != nil {
				kube = fake.NewClientset(tc.there)
			}
			n := newBrokerNode(&Config{NodeName: "broker", NodeIP: "10.0.0.2"}, kube, "v1")
			n.sum = func() (corev1.ResourceList, int) { return nil, 0 }
			n.hold = func() bool { return tc.hold }
			first, err := n.first(t.Context())
			require.NoError(t, err)
			require.Equal(t, tc.ready, first.Status.Conditions[0].Status)
			require.Equal(t, "10.0.0.2", first.Status.Addresses[0].Address, "it is served here")
			require.Equal(t, tc.ready == corev1.ConditionTrue, first.Status.Capacity.Cpu().Value() == 8)
			n.forge(first) // What follows goes by its conditions.
		})
	}
}
