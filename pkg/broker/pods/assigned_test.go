package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
)

// The mark keeps a pod out of its Services. If it is removed too early, traffic goes to a provider that hangs.
func TestANewLeaderChangesNoMarkBeforeItsProbesConfirmIt(t *testing.T) {
	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	outage := v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{
		Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoAnswer, LastTransitionTime: since,
	}}}
	for name, tc := range map[string]struct {
		before v1alpha1.ProviderClusterStatus
		probes []bool // Whether each was answered.
		marked bool
	}{
		"before its first probe has ended":        {outage, nil, true},
		"after one failed, in an outage":          {outage, []bool{false}, true},
		"after one was answered":                  {outage, []bool{true}, true},
		"after two were answered":                 {outage, []bool{true, true}, false},
		"after one failed, without an outage":     {v1alpha1.ProviderClusterStatus{}, []bool{false}, true},
		"after one failed and one was answered":   {v1alpha1.ProviderClusterStatus{}, []bool{false, true}, false},
		"after two failed: the outage is its own": {v1alpha1.ProviderClusterStatus{}, []bool{false, false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			assigned := assignedPod(corev1.PodRunning, func(pod *corev1.Pod) {
				pod.Annotations[v1alpha1.UnreachableAnnotation] = since.UTC().Format(time.RFC3339)
			})
			c := newController(t, false, interceptor.Funcs{}, nil, virtualNodeOf("q", "q1"), assigned)
			marked := func() bool {
				pod, _ := c.reconciled(t, "pod")
				require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
				return pod.Annotations[v1alpha1.UnreachableAnnotation] != ""
			}
			c.Policies.Defaults.FailoverAfter = 2 * time.Hour
			require.True(t, marked(), "the provider is not known yet")
			c.State.SetProvider("q", state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &tc.before)
			for _, answered := range tc.probes {
				now := time.Now()
				c.State.ObserveProbe("q", state.Probe{Began: now, Ended: now, Answered: answered})
			}
			require.Equal(t, tc.marked, marked())
		})
	}
}
