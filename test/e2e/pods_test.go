package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// twoHops measures how long a pod takes from the consumer through the broker to the provider and back: it must be
// Running in the consumer within 3 s.
func twoHops(t *testing.T, f *federation) {
	const namespace = "two-hops"
	require.NoError(t, f.consumer.Offload(t.Context(), namespace))
	atBroker := f.consumer.RemoteNamespace(namespace)
	require.NoError(t, f.local.Offload(t.Context(), atBroker))

	var took []time.Duration
	for i := range 4 {
		pod := newPod(namespace, fmt.Sprintf("traveller-%d", i))
		began := time.Now()
		require.NoError(t, f.consumer.Client.Create(t.Context(), pod))
		eventually(t, 30*time.Second, func(ctx context.Context) error {
			if err := f.consumer.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod is %s on %q", pod.Status.Phase, pod.Spec.NodeName)
			}
			return nil
		})
		if i > 0 { // the first pod only warms up caches and connections
			took = append(took, time.Since(began))
		}
		remote := &corev1.Pod{}
		key := client.ObjectKey{Namespace: f.local.RemoteNamespace(atBroker), Name: pod.Name}
		require.NoError(t, f.remote.Client.Get(t.Context(), key, remote), "the pod must really run at the provider")
		assert.Equal(t, corev1.PodRunning, remote.Status.Phase)
	}
	slices.Sort(took)
	t.Logf("creation to Running over two hops: %v", took)
	assert.Less(t, took[len(took)/2], sandbox.Crowded(3*time.Second), "median of %v", took)
	require.NoError(t, f.consumer.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
}

func deployment(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	d := newDeployment(local, "web", 16)
	require.NoError(t, f.local.Client.Create(t.Context(), d))
	eventually(t, time.Minute, func(ctx context.Context) error { return allRunning(ctx, f.local, local, 16) })
	eventually(t, 10*time.Second, func(ctx context.Context) error { return allRunning(ctx, f.remote, remote, 16) })

	here, err := pods(t.Context(), f.local, local)
	require.NoError(t, err)
	seen := f.remotePodRange(t)
	for i := range here {
		pod := &here[i]
		assert.Equal(t, f.node, pod.Spec.NodeName)
		eventually(t, 10*time.Second, func(ctx context.Context) error {
			there, err := f.remotePod(ctx, pod)
			if err != nil {
				return err
			}
			if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if want := translate(t, there.Status.PodIP, seen); pod.Status.PodIP != want {
				return fmt.Errorf("%s shows address %s, want %s: how this cluster sees %s", pod.Name, pod.Status.PodIP,
					want, there.Status.PodIP)
			}
			return nil
		})
	}

	require.NoError(t, f.local.Client.Delete(t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	eventually(t, time.Minute, func(ctx context.Context) error { return allRunning(ctx, f.local, local, 0) })
	eventually(t, time.Minute, func(ctx context.Context) error {
		var shadows offloadingv1beta1.ShadowPodList
		if err := f.remote.Client.List(ctx, &shadows, client.InNamespace(remote)); err != nil {
			return err
		}
		if len(shadows.Items) > 0 {
			return fmt.Errorf("%d ShadowPods are left", len(shadows.Items))
		}
		return allRunning(ctx, f.remote, remote, 0)
	})
}

// translate maps an address of any /16 into another /16.
func translate(t *testing.T, address string, to netip.Prefix) string {
	t.Helper()
	a, err := netip.ParseAddr(address)
	require.NoError(t, err)
	b, p := a.As4(), to.Addr().As4()
	b[0], b[1] = p[0], p[1]
	return netip.AddrFrom4(b).String()
}

func statuses(t *testing.T, f *federation) {
	local, _ := f.namespaces(t)

	restarted := newPod(local, "restarted")
	f.runPod(t, restarted)
	f.setRemoteStatus(t, restarted, func(s *corev1.PodStatus) {
		s.ContainerStatuses[0].RestartCount = 3
		s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(restarted), restarted); err != nil {
			return err
		}
		c := restarted.Status.ContainerStatuses[0]
		if c.RestartCount != 3 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.Reason != "OOMKilled" {
			return fmt.Errorf("restarts %d, last state %v", c.RestartCount, c.LastTerminationState)
		}
		return nil
	})

	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: local},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: newPod(local, "job").Spec}},
	}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.NoError(t, f.local.Client.Create(t.Context(), job))
	var worker corev1.Pod
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		var list corev1.PodList
		if err := f.local.Client.List(ctx, &list, client.InNamespace(local), client.MatchingLabels{"job-name": job.Name}); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods of the Job, none Running", len(list.Items))
		}
		worker = list.Items[0]
		return nil
	})
	f.setRemoteStatus(t, &worker, func(s *corev1.PodStatus) { exit(s, corev1.PodSucceeded, 0) })
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.Succeeded != 1 {
			return fmt.Errorf("job status %+v", job.Status)
		}
		return nil
	})

	failed := newPod(local, "failed")
	failed.Spec.RestartPolicy = corev1.RestartPolicyNever
	f.runPod(t, failed)
	f.setRemoteStatus(t, failed, func(s *corev1.PodStatus) { exit(s, corev1.PodFailed, 3) })
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(failed), failed); err != nil {
			return err
		}
		end := failed.Status.ContainerStatuses[0].State.Terminated
		if failed.Status.Phase != corev1.PodFailed || end == nil || end.ExitCode != 3 {
			return fmt.Errorf("phase %s, state %+v", failed.Status.Phase, failed.Status.ContainerStatuses[0].State)
		}
		return nil
	})
}

// exit sets a status in which the process of the first container has ended.
func exit(s *corev1.PodStatus, phase corev1.PodPhase, code int32) {
	s.Phase = phase
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	s.ContainerStatuses[0].Ready = false
	s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, FinishedAt: metav1.Now(),
	}}
	for i := range s.Conditions {
		if s.Conditions[i].Type == corev1.PodReady || s.Conditions[i].Type == corev1.ContainersReady {
			s.Conditions[i].Status = corev1.ConditionFalse
		}
	}
}

func offloading(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	pod := newPod(local, "there")
	f.runPod(t, pod)
	require.NoError(t, f.local.Client.Delete(t.Context(), pod))
	eventually(t, 30*time.Second, func(ctx context.Context) error { return allRunning(ctx, f.local, local, 0) })

	require.NoError(t, f.local.Unoffload(t.Context(), local))
	err := f.remote.Client.Get(t.Context(), client.ObjectKey{Name: remote}, &corev1.Namespace{})
	require.True(t, apierrors.IsNotFound(err), "the namespace's copy is gone, got %v", err)

	require.NoError(t, f.local.Offload(t.Context(), local))
	f.runPod(t, newPod(local, "back"))
}
