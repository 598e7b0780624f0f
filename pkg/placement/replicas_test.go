package placement

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func labelled(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
}

func TestWhichPodsAreReplicas(t *testing.T) {
	for name, tc := range map[string]struct {
		one, other map[string]string
		replicas   bool
	}{
		"pods with the same labels": {map[string]string{"app": "web", "tier": "a"}, map[string]string{"app": "web", "tier": "a"}, true},
		"pods with another value":   {map[string]string{"app": "web"}, map[string]string{"app": "db"}, false},
		"pods with one label more":  {map[string]string{"app": "web"}, map[string]string{"app": "web", "tier": "a"}, false},
		"pods without labels":       {nil, nil, false},
		"pods of two revisions": {
			map[string]string{"app": "web", "pod-template-hash": "1"}, map[string]string{"app": "web", "pod-template-hash": "2"}, true,
		},
		"pods with a revision alone": {map[string]string{"pod-template-hash": "1"}, map[string]string{"pod-template-hash": "1"}, false},
		"pods of a StatefulSet": {
			map[string]string{
				"app": "db", "controller-revision-hash": "1",
				"statefulset.kubernetes.io/pod-name": "db-0", "apps.kubernetes.io/pod-index": "0",
			},
			map[string]string{
				"app": "db", "controller-revision-hash": "2",
				"statefulset.kubernetes.io/pod-name": "db-1", "apps.kubernetes.io/pod-index": "1",
			},
			true,
		},
		"pods of an indexed Job": {
			map[string]string{"job-name": "x", "batch.kubernetes.io/job-completion-index": "0"},
			map[string]string{"job-name": "x", "batch.kubernetes.io/job-completion-index": "1"},
			true,
		},
		"pods of two virtual nodes, one of which is assigned": {
			map[string]string{
				"app": "web", "offloading.liqo.io/nodename": "a", "liqo.io/shadowPod": "true", v1alpha1.VirtualNodeLabel: "q1",
			},
			map[string]string{"app": "web", "offloading.liqo.io/nodename": "b", "liqo.io/managed-by": "shadowpod"},
			true,
		},
		"pods whose domain only ends alike": {
			map[string]string{"app": "web", "notliqo.io/x": "1"}, map[string]string{"app": "web", "notliqo.io/x": "2"}, false,
		},
		"labels that read alike": {map[string]string{"a": "b"}, map[string]string{"a": "", "b": ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.replicas, ReplicasOf(labelled("a", tc.one)) == ReplicasOf(labelled("b", tc.other)))
		})
	}
	long := labelled("a", map[string]string{strings.Repeat("x", 1000): "1"})
	require.Less(t, len(ReplicasOf(long)), 100)
	require.Len(t, long.Labels, 1, "the pod is not changed")
}

func TestHowManyReplicasMayBeUnavailable(t *testing.T) {
	for _, tc := range []struct {
		name     string
		limit    *intstr.IntOrString
		replicas int
		want     int
	}{
		{"a quarter by default", nil, 8, 2},
		{"rounded down", nil, 11, 2},
		{"but one at least", nil, 3, 1},
		{"also the only one", nil, 1, 1},
		{"a percentage", ptr.To(intstr.FromString("50%")), 5, 2},
		{"a percentage that is less than one", ptr.To(intstr.FromString("1%")), 5, 1},
		{"all", ptr.To(intstr.FromString("100%")), 5, 5},
		{"a number", ptr.To(intstr.FromInt32(3)), 8, 3},
		{"a number above that of the replicas", ptr.To(intstr.FromInt32(30)), 8, 30},
		{"what the CRD refuses", ptr.To(intstr.FromString("many")), 8, 1},
		{"zero, which it refuses as well", ptr.To(intstr.FromInt32(0)), 8, 1},
	} {
		rules := Rules{MaxUnavailable: tc.limit}
		require.Equal(t, tc.want, rules.Unavailable(tc.replicas), tc.name)
	}
}

func TestAPolicySetsTheLimitUnlessItIsInvalid(t *testing.T) {
	half, none := intstr.FromString("50%"), intstr.FromString("0%")
	for _, limit := range []*intstr.IntOrString{&half, &none, nil} {
		p := read(t, policy("web", func(s *v1alpha1.PlacementPolicySpec) { s.MaxUnavailable = limit }))
		got, _ := p.CriteriaOf(t.Context(), &corev1.Pod{}, &corev1.Namespace{})
		if limit == &half {
			require.Equal(t, 4, got.Rules.Unavailable(8))
		} else {
			require.Equal(t, 2, got.Rules.Unavailable(8))
		}
	}
}

func TestWhichReplicasAreAvailable(t *testing.T) {
	now := time.Now()
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		made := labelled("a", map[string]string{v1alpha1.VirtualNodeLabel: "q1"})
		made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, c := range change {
			c(made)
		}
		return made
	}
	deleted := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(-ago))) }
	}
	for name, tc := range map[string]struct {
		pod               *corev1.Pod
		counts, available bool
	}{
		"one that is Ready":                     {pod(), true, true},
		"one that is not Ready":                 {pod(func(pod *corev1.Pod) { pod.Status.Conditions = nil }), true, false},
		"one that has left its provider":        {pod(func(pod *corev1.Pod) { pod.Labels = nil }), true, false},
		"one that ends within its grace period": {pod(deleted(-time.Second)), true, false},
		"one whose provider does not end it":    {pod(deleted(time.Second)), false, false},
		"one that has succeeded and is not counted": {
			pod(func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Conditions = corev1.PodSucceeded, nil }), false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.counts, Replicates(tc.pod, now))
			require.Equal(t, tc.available, Available(tc.pod))
		})
	}
}
