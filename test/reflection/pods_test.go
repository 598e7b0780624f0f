package reflection

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// TestPodsAreAccepted shares one reflection between all pods, because Liqo keeps the identity of a virtual kubelet in a
// package variable.
func TestPodsAreAccepted(t *testing.T) {
	w := newWorld(t)
	w.run(t.Context())

	for name, tc := range map[string]struct {
		local  func(*corev1.Pod)
		remote func(*corev1.Pod)
		status func(*corev1.PodStatus)
	}{
		"as-forwarded": {},
		"requests-of-a-limitrange": {remote: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = amounts("100m", "64Mi")
		}},
		"an-injected-sidecar": {
			remote: func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
					Name: "proxy", Image: "proxy", Resources: corev1.ResourceRequirements{Requests: amounts("10m", "40Mi")},
				})
			},
			status: func(s *corev1.PodStatus) { s.ContainerStatuses = running("main", "proxy").ContainerStatuses },
		},
		"resources-of-the-pod": {local: func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("1", "1Gi"), Limits: amounts("1", "1Gi")}
		}},
		"nominated-there": {status: func(s *corev1.PodStatus) { s.NominatedNodeName = "node-1" }},
		"a-condition-without-a-name": {status: func(s *corev1.PodStatus) {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: "not a name", Status: corev1.ConditionTrue})
		}},
		"resources-of-a-device-plugin": {status: func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].AllocatedResourcesStatus = []corev1.ResourceStatus{{Name: "example.com/gpu"}}
		}},
		"a-user-that-is-none": {status: func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: -1}}
		}},
		"claims-of-that-cluster": {status: func(s *corev1.PodStatus) {
			s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("gpu-1")}}
		}},
		"a-generation-of-that-pod": {
			status: func(s *corev1.PodStatus) { s.ObservedGeneration, s.Conditions[0].ObservedGeneration = 7, -1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			p := pod(name)
			if tc.local != nil {
				tc.local(p)
			}
			stored := w.create(p)
			there := w.forwarded(name)
			require.Equal(t, stored.Spec.Resources, there.Spec.Resources)
			if tc.remote != nil {
				tc.remote(there)
			}
			status := running("main")
			if tc.status != nil {
				tc.status(&status)
			}
			w.runs(there, status)
			shown := w.shown(name, corev1.PodRunning)
			require.Equal(t, stored.Status.QOSClass, shown.Status.QOSClass)
			require.LessOrEqual(t, shown.Status.ObservedGeneration, shown.Generation)
		})
	}

	t.Run("a Job's pod ends although its class differs", func(t *testing.T) {
		w := w.in(t)
		w.create(pod("job", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		there := w.forwarded("job")
		there.Spec.Containers[0].Resources.Requests = amounts("100m", "64Mi")
		status := running("main")
		status.Phase = corev1.PodSucceeded
		status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
		w.runs(there, status)
		w.shown("job", corev1.PodSucceeded)
		w.shadow("job") // It is kept, so that the logs can be read.
	})

	t.Run("a pod that initialises again is not Ready", func(t *testing.T) {
		w := w.in(t)
		w.create(pod("again", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.InitContainers = []corev1.Container{{Name: "download", Image: "busybox"}}
		}))
		status := running("main")
		status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "download", Ready: true, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"},
		}}}
		there := w.runs(w.forwarded("again"), status)
		w.shown("again", corev1.PodRunning)
		there.Status.Phase = corev1.PodPending
		there.Status.InitContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		there.Status.InitContainerStatuses[0].Ready = false
		there.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
		there.Status.ContainerStatuses[0].Ready = false
		there.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		w.update(there)
		shown := w.eventually("again", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodPending && len(p.Status.InitContainerStatuses) == 1
		})
		require.Equal(t, corev1.ConditionFalse, conditions(shown)[corev1.PodReady])
		require.NotNil(t, shown.Status.InitContainerStatuses[0].State.Running, "the next status shows what runs")
	})
}

// TestShadowPodsAreAccepted tests that the provider's API server accepts the pods, and that they keep their fields.
func TestShadowPodsAreAccepted(t *testing.T) {
	w := newWorld(t)
	w.run(t.Context())
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}

	t.Run("a spread with keys of labels", func(t *testing.T) {
		w := w.in(t)
		w.create(pod("spread", func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: selector("spread"), MatchLabelKeys: []string{"pod-template-hash", "missing"},
			}}
		}))
		there := w.forwarded("spread")
		stored, err := admitted(t, there)
		require.NoError(t, err)
		constraint := stored.Spec.TopologySpreadConstraints[0]
		require.Equal(t, []string{"missing"}, constraint.MatchLabelKeys)
		require.Equal(t, []metav1.LabelSelectorRequirement{{Key: "pod-template-hash", Operator: "In", Values: []string{"abc"}}},
			constraint.LabelSelector.MatchExpressions)
	})

	t.Run("anti-affinity with keys of labels", func(t *testing.T) {
		w := w.in(t)
		w.create(pod("away", func(p *corev1.Pod) {
			p.Annotations = map[string]string{consts.PodAntiAffinityPresetKey: consts.PodAntiAffinityPresetValuePropagate}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: selector("away"), MatchLabelKeys: []string{"pod-template-hash"},
				}},
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
					Weight: 1,
					PodAffinityTerm: corev1.PodAffinityTerm{
						TopologyKey: corev1.LabelHostname, LabelSelector: selector("away"),
						MismatchLabelKeys: []string{"pod-template-hash"},
					},
				}},
			}}
		}))
		_, err := admitted(t, w.forwarded("away"))
		require.NoError(t, err)
	})

	t.Run("a user namespace", func(t *testing.T) {
		w := w.in(t)
		w.create(pod("userns", func(p *corev1.Pod) { p.Spec.HostUsers = ptr.To(false) }))
		require.Equal(t, ptr.To(false), w.forwarded("userns").Spec.HostUsers)
	})

	t.Run("the UID of its pod", func(t *testing.T) {
		w := w.in(t)
		stored := w.create(pod("known"))
		require.Equal(t, string(stored.UID), w.shadow("known").Annotations[v1alpha1.PodUIDAnnotation])
	})
}

func TestReadinessGatesAreOfThisCluster(t *testing.T) {
	const gate corev1.PodConditionType = "example.com/registered"
	w := newWorld(t)
	w.run(t.Context())
	gated := func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}} }
	open := func(name string) {
		t.Helper()
		shown := w.localPod(name)
		shown.Status.Conditions = append(shown.Status.Conditions, corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
		_, err := w.local.CoreV1().Pods("ns").UpdateStatus(t.Context(), shown, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.eventually(name, func(p *corev1.Pod) bool {
			return conditions(p)[gate] == corev1.ConditionTrue && conditions(p)[corev1.PodReady] == corev1.ConditionTrue
		})
	}

	w.create(pod("gated", gated))
	require.Empty(t, w.forwarded("gated").Spec.ReadinessGates)
	there := w.runs(w.forwarded("gated"), running("main"))
	shown := w.shown("gated", corev1.PodRunning)
	require.Equal(t, corev1.ConditionFalse, conditions(shown)[corev1.PodReady], "its gate is closed")
	open("gated")
	there.Status.Message = "changed"
	w.update(there)
	shown = w.eventually("gated", func(p *corev1.Pod) bool { return p.Status.Message == "changed" })
	require.Equal(t, corev1.ConditionTrue, conditions(shown)[corev1.PodReady])
	there.Status.Conditions[0].Status = corev1.ConditionFalse
	w.update(there)
	w.eventually("gated", func(p *corev1.Pod) bool { return conditions(p)[corev1.PodReady] == corev1.ConditionFalse })

	// A ShadowPod of another virtual kubelet has the readiness gate, which no controller there sets.
	w.create(pod("forwarded-with-its-gate", gated))
	status := running("main")
	status.Conditions[0].Status, status.Conditions[0].Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
	w.runs(w.forwarded("forwarded-with-its-gate"), status)
	w.shown("forwarded-with-its-gate", corev1.PodRunning)
	open("forwarded-with-its-gate")
}

func conditions(p *corev1.Pod) map[corev1.PodConditionType]corev1.ConditionStatus {
	has := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range p.Status.Conditions {
		has[c.Type] = c.Status
	}
	return has
}
