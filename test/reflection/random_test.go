package reflection

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podstatus"
)

// TestRandomStatusesAreAccepted writes the statuses of random remote pods, one after the other, into a local pod.
func TestRandomStatusesAreAccepted(t *testing.T) {
	for seed := range int64(300) {
		rnd := rand.New(rand.NewSource(seed))
		local, err := admitted(t, pod("random", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = []corev1.RestartPolicy{
				corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
			}[rnd.Intn(3)]
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init"}}
			p.Spec.Containers[0].Resources.Requests = amounts("1", "1Gi")
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name: "rules", Image: "rules", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever),
				RestartPolicyRules: []corev1.ContainerRestartRule{{
					Action:    corev1.ContainerRestartRuleActionRestart,
					ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}},
				}},
			})
		}))
		require.NoError(t, err)
		local.Generation = 1
		for range 10 {
			remote := &corev1.Pod{Status: randomStatus(rnd)}
			fresh := forge.LocalPod(local, podstatus.Show(local, remote), func(string) string { return "10.0.0.2" }, 0)
			require.NoError(t, acceptStatus(t, fresh, local), "seed %d: %s", seed, fmt.Sprintf("%+v", fresh.Status))
			local.Status = fresh.Status
			require.Equal(t, remote.Status.Phase, local.Status.Phase)
		}
	}
}

func randomStatus(rnd *rand.Rand) corev1.PodStatus {
	names := []string{"main", "init", "rules", "injected"}
	fill := randfill.New().RandSource(rnd).NilChance(0.3).NumElements(0, 3).MaxDepth(8).Funcs(
		func(s *string, c randfill.Continue) { *s = names[c.Intn(len(names))] },
		func(m *metav1.Time, _ randfill.Continue) { *m = metav1.Unix(1700000000, 0) },
		func(s *corev1.ContainerState, c randfill.Continue) {
			switch c.Intn(3) {
			case 0:
				s.Waiting = &corev1.ContainerStateWaiting{}
			case 1:
				s.Running = &corev1.ContainerStateRunning{}
			default:
				s.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(c.Intn(3))}
			}
		},
		func(u *corev1.LinuxContainerUser, c randfill.Continue) {
			u.UID, u.GID = int64(c.Intn(3))-1, int64(c.Intn(3))-1
		},
		func(n *corev1.ResourceName, c randfill.Continue) {
			*n = []corev1.ResourceName{"cpu", "memory", "example.com/gpu", "claim:gpu"}[c.Intn(4)]
		},
	)
	var status corev1.PodStatus
	fill.Fill(&status)
	status.HostIPs, status.PodIPs = nil, nil
	return status
}
