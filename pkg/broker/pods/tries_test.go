package pods

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
)

// impatient is a controller whose pods may be Pending for two minutes. Provider q has no pods and no ShadowPods.
func impatient(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	c := newController(t, true, interceptor.Funcs{}, nil, objects...)
	c.Policies.Defaults.PendingTimeout, c.RefusalMemory = 2*time.Minute, 5*time.Minute
	c.State.SetProvider("q", state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{},
	}, &v1alpha1.ProviderClusterStatus{})
	return c
}

// current is a pod as the API has it.
func (c *Controller) current(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &pod))
	return &pod
}

// after reconciles a pod every five seconds for so long, and returns how often it was assigned.
func (c *Controller) after(t *testing.T, long time.Duration) (assignments int) {
	t.Helper()
	last := ""
	for began := time.Now(); time.Since(began) < long; time.Sleep(5 * time.Second) {
		pod, _ := c.reconciled(t, "pod")
		if at := pod.Annotations[v1alpha1.AssignedAtAnnotation]; at != last && pod.Labels[v1alpha1.VirtualNodeLabel] != "" {
			last = at
			assignments++
		}
	}
	return assignments
}

// Its image does not exist, for example: it would start nowhere.
func TestAPodThatStartsNowhereIsTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := assignedPod(corev1.PodPending)
		pod.Labels, pod.Annotations, pod.Spec.Containers = nil, nil, cpus("1")
		c := impatient(t, pod)
		require.Equal(t, 1, c.after(t, 6*time.Minute))
		why := c.reported(t, "pod")
		require.Equal(t, "BackOff", why.Reason)
		until := backoff.Of(c.current(t, "pod"))["q1"].Until
		require.Contains(t, why.Message, "was tried at q1: not started within 2m; next try not before "+until.Format(time.RFC3339))

		tried := c.after(t, 12*time.Hour)
		require.Less(t, tried, 27, "every seven minutes it would be 102")
		require.Greater(t, tried, 18, "but it is not given up")
		q, _ := c.State.Provider("q")
		require.Equal(t, int64(1), q.KPIs.Failed, "one pod counts as one failure of a provider")
		require.Greater(t, q.Refusals[state.PendingTooLong], 18)
	})
}

func TestANextLeaderKnowsWhereAPodWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := assignedPod(corev1.PodPending)
		pod.Labels, pod.Annotations, pod.Spec.Containers = nil, nil, cpus("1")
		c := impatient(t, pod)
		require.Equal(t, 1, c.after(t, 3*time.Minute))
		waiting := c.current(t, "pod")
		waiting.ResourceVersion = ""
		next := impatient(t, waiting)
		require.Zero(t, next.after(t, 3*time.Minute))
		require.Equal(t, 1, next.after(t, 3*time.Minute))

		// An administrator may remove the annotation.
		require.Zero(t, next.after(t, 4*time.Minute))
		waiting = next.current(t, "pod")
		delete(waiting.Annotations, v1alpha1.TriesAnnotation)
		require.NoError(t, next.Client.Update(t.Context(), waiting))
		require.Equal(t, 1, next.after(t, time.Minute))
	})
}

func TestTriesAreForgottenWhenAPodStarts(t *testing.T) {
	pod := assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
		pod.Annotations[v1alpha1.AssignedAtAnnotation] = time.Now().Format(time.RFC3339Nano)
		pod.Annotations[v1alpha1.TriesAnnotation] = backoff.Tries(nil).After("r1", "refused", time.Now(), time.Minute).Annotation()
	}, sandboxReady, waits("ContainerCreating"))
	c := impatient(t, pod)
	now, _ := c.reconciled(t, "pod")
	require.Contains(t, now.Annotations, v1alpha1.TriesAnnotation, "its image is being pulled")
	initContainer(&now)
	require.NoError(t, c.Client.Status().Update(t.Context(), &now))
	now, _ = c.reconciled(t, "pod")
	require.NotContains(t, now.Annotations, v1alpha1.TriesAnnotation)
	require.Equal(t, "q1", now.Labels[v1alpha1.VirtualNodeLabel])
}

// No change of the pod or of a policy may be seen that makes it valid: of its namespace, for example.
func TestAPodWhoseCriteriaAreInvalidIsTriedNowAndThen(t *testing.T) {
	pod := assignedPod(corev1.PodPending)
	pod.Labels, pod.Annotations = nil, map[string]string{v1alpha1.PolicyAnnotation: "none-such"}
	_, result := impatient(t, pod).reconciled(t, "pod")
	require.Equal(t, invalidRecheck, result.RequeueAfter)
}

func TestTheReasonOfARefusalIsKept(t *testing.T) {
	pod := assignedPod(corev1.PodPending, refusedBy("q1", noon))
	c := impatient(t, pod)
	require.NoError(t, c.evict(t.Context(), pod, placed("q1"), eviction.Refused))
	require.Equal(t, "refused: QuotaExceeded", backoff.Of(c.current(t, "pod"))["q1"].Reason)
	pod = assignedPod(corev1.PodPending)
	c = impatient(t, pod)
	require.NoError(t, c.evict(t.Context(), pod, placed("q1"), eviction.Drained))
	require.Empty(t, backoff.Of(c.current(t, "pod")), "that was no try")
}

// Its owner may have chosen the provider, to have failures counted there.
func TestAPodWithoutItsImageIsNoFailureOfItsProvider(t *testing.T) {
	for reason, failures := range map[string]int64{"ImagePullBackOff": 0, "CreateContainerConfigError": 0, "ContainerCreating": 1} {
		synctest.Test(t, func(t *testing.T) {
			pod := assignedPod(corev1.PodPending, waits(reason))
			pod.Annotations[v1alpha1.AssignedAtAnnotation] = time.Now().Format(time.RFC3339Nano)
			c := impatient(t, pod)
			for range 30 {
				c.reconciled(t, "pod")
				time.Sleep(5 * time.Second)
			}
			q, _ := c.State.Provider("q")
			require.Equal(t, 1, q.Refusals[state.PendingTooLong], "it is tried elsewhere")
			require.Equal(t, failures, q.KPIs.Failed, reason)
		})
	}
}
