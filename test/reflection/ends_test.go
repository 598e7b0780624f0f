package reflection

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// ended returns a pod as a kubelet writes it before it removes it: with a terminal phase.
func ended(p *corev1.Pod, disruption string) *corev1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To(int64(30))
	p.Status.Phase = corev1.PodFailed
	if disruption != "" {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: disruption,
		})
	}
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, Reason: "Error"},
	}
	return p
}

// TestPodsThatWereEndedThere tests remote pods that end without a request of this cluster.
func TestPodsThatWereEndedThere(t *testing.T) {
	w := newWorld(t)
	w.run(t.Context())
	start := func(t *testing.T, name string, change ...func(*corev1.Pod)) *corev1.Pod {
		t.Helper()
		w := w.in(t)
		w.create(pod(name, change...))
		there := w.runs(w.forwarded(name), running("main"))
		w.shown(name, corev1.PodRunning)
		return there
	}
	// requireEnd requires that the end was written before the pod was deleted.
	requireEnd := func(t *testing.T, name, disruption string, exit int32) {
		t.Helper()
		w := w.in(t)
		w.gone(name)
		written := w.statuses(name)
		last := written[len(written)-1]
		require.Equal(t, corev1.PodFailed, last.Phase)
		i := len(last.Conditions) - 1
		require.Equal(t, corev1.DisruptionTarget, last.Conditions[i].Type)
		require.Equal(t, disruption, last.Conditions[i].Reason)
		require.Equal(t, exit, last.ContainerStatuses[0].State.Terminated.ExitCode)
	}

	t.Run("a pod that was evicted there goes, with its ShadowPod", func(t *testing.T) {
		w := w.in(t)
		there := start(t, "evicted")
		w.update(ended(there, "EvictionByEvictionAPI"))
		w.eventuallyEnded("evicted")
		w.remove("evicted")
		requireEnd(t, "evicted", "EvictionByEvictionAPI", 143)
	})

	t.Run("so does one whose end was in the cache for no moment", func(t *testing.T) {
		w := w.in(t)
		there := start(t, "at-once")
		w.update(ended(there, "EvictionByEvictionAPI"))
		w.remove("at-once")
		w.failShadow("at-once")
		requireEnd(t, "at-once", "EvictionByEvictionAPI", 143)
	})

	t.Run("so does one that was deleted there", func(t *testing.T) {
		w := w.in(t)
		there := start(t, "deleted")
		w.update(ended(there, ""))
		w.remove("deleted")
		requireEnd(t, "deleted", "DeletedInRemoteCluster", 143)
	})

	for name, reason := range map[string]string{
		"its kubelet": corev1.PodReasonTerminationByKubelet, "the broker": v1alpha1.ReasonEvictionByBroker,
	} {
		t.Run("a pod that "+name+" ended stays, without its ShadowPod", func(t *testing.T) {
			w := w.in(t)
			there := ended(start(t, strings.ToLower(reason)), reason)
			there.DeletionTimestamp, there.DeletionGracePeriodSeconds = nil, nil
			w.update(there)
			w.withoutShadow(there.Name)
			require.Equal(t, corev1.PodFailed, w.localPod(there.Name).Status.Phase)
		})
	}

	t.Run("a pod that failed by itself keeps its ShadowPod until its remote pod is gone", func(t *testing.T) {
		w := w.in(t)
		there := ended(start(t, "failed"), "")
		there.DeletionTimestamp, there.DeletionGracePeriodSeconds = nil, nil
		w.update(there)
		w.shown("failed", corev1.PodFailed)
		w.shadow("failed")
		w.remove("failed")
		w.withoutShadow("failed")
		require.NotNil(t, w.localPod("failed"))
	})

	t.Run("a pod that has ended does not run again", func(t *testing.T) {
		w := w.in(t)
		there := ended(start(t, "remade"), "")
		there.DeletionTimestamp, there.DeletionGracePeriodSeconds = nil, nil
		w.update(there)
		w.shown("remade", corev1.PodFailed)
		w.remove("remade")
		again := forwardedAgain("remade", there)
		_, err := w.remote.CoreV1().Pods("ns-home").Create(t.Context(), again, metav1.CreateOptions{})
		require.NoError(t, err)
		w.withoutShadow("remade")
		require.Equal(t, corev1.PodFailed, w.localPod("remade").Status.Phase)
	})

	t.Run("the pod of a ShadowPod stays until that one goes", func(t *testing.T) {
		w := w.in(t)
		there := start(t, "of-a-consumer", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: "ShadowPod", Name: p.Name, UID: "shadow",
				Controller: ptr.To(true),
			}}
		})
		w.update(ended(there, "EvictionByEvictionAPI"))
		w.withoutShadow("of-a-consumer")
		require.Equal(t, corev1.PodFailed, w.localPod("of-a-consumer").Status.Phase)
	})

	t.Run("a pod that is deleted here goes once its kubelet has ended and removed it", func(t *testing.T) {
		w := w.in(t)
		there := start(t, "stopped")
		w.delete("stopped")
		w.update(ended(there, ""))
		w.shown("stopped", corev1.PodFailed)
		w.remove("stopped")
		w.gone("stopped")
	})

	t.Run("a pod that is deleted here ends before it is removed", func(t *testing.T) {
		w := w.in(t)
		start(t, "job")
		w.delete("job")
		w.remove("job")
		w.gone("job")
		written := w.statuses("job")
		last := written[len(written)-1]
		require.Equal(t, corev1.PodFailed, last.Phase)
		require.EqualValues(t, 137, last.ContainerStatuses[0].State.Terminated.ExitCode)
		for _, c := range last.Conditions {
			require.NotEqual(t, corev1.DisruptionTarget, c.Type)
		}
	})
}

// delete deletes a local pod, and waits until its ShadowPod is gone.
func (w *world) delete(name string) {
	w.t.Helper()
	p := w.localPod(name)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To(int64(30))
	require.NoError(w.t, w.local.Tracker().Update(podsResource, p, "ns"))
	w.withoutShadow(name)
}

// eventuallyEnded waits until the local pod shows its end, or is gone.
func (w *world) eventuallyEnded(name string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		p := w.localPod(name)
		return p == nil || p.Status.Phase == corev1.PodFailed
	}, patience, tick)
}

// failShadow sets the ShadowPod's phase to Failed, as Liqo's controller does when its pod has failed.
func (w *world) failShadow(name string) {
	w.t.Helper()
	shadows := w.remoteLiqo.OffloadingV1beta1().ShadowPods("ns-home")
	shadow, err := shadows.Get(w.t.Context(), name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return
	}
	require.NoError(w.t, err)
	shadow.Status.Phase = corev1.PodFailed
	if _, err = shadows.UpdateStatus(w.t.Context(), shadow, metav1.UpdateOptions{}); !kerrors.IsNotFound(err) {
		require.NoError(w.t, err)
	}
}

// forwardedAgain returns the pod that Liqo's controller creates if it has missed the end of the previous one.
func forwardedAgain(name string, before *corev1.Pod) *corev1.Pod {
	again := before.DeepCopy()
	again.UID, again.ResourceVersion = types.UID("again-"+name), ""
	again.Status = running("main")
	return again
}

// TestAPodIsNotTakenForTheOneBefore replaces a pod while no virtual kubelet runs.
func TestAPodIsNotTakenForTheOneBefore(t *testing.T) {
	image := func(image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }
	}
	for name, tc := range map[string]struct {
		// mark is the UID on the ShadowPod; age is how long before the next pod it was created.
		mark     string
		age      time.Duration
		started  bool
		replaced bool
	}{
		"by its UID":                    {mark: "uid-db-0", replaced: true},
		"by its age":                    {age: time.Hour, replaced: true},
		"not by a difference of clocks": {age: time.Minute},
		"not if the pod has started by its status": {age: time.Hour, started: true},
		"not if it is the same":                    {mark: "next", age: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			before := newWorld(t)
			before.run(t.Context())
			before.create(pod("db-0", image("db:1")))
			forwarded := before.forwarded("db-0")
			shadow := before.shadow("db-0")
			shadow.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
			delete(shadow.Annotations, v1alpha1.PodUIDAnnotation)
			if tc.mark != "" {
				metav1.SetMetaDataAnnotation(&shadow.ObjectMeta, v1alpha1.PodUIDAnnotation, tc.mark)
			}

			// The next virtual kubelet has a world of its own, in which the earlier one cannot still write.
			w := newWorld(t)
			there := w.runs(forwarded, running("main"))
			_, err := w.remoteLiqo.OffloadingV1beta1().ShadowPods("ns-home").Create(t.Context(), shadow, metav1.CreateOptions{})
			require.NoError(t, err)
			next := pod("db-0", image("db:2"))
			next.UID = "next"
			next = w.create(next)
			if tc.started {
				next.Status.StartTime = ptr.To(metav1.Now())
				require.NoError(t, w.local.Tracker().Update(podsResource, next, "ns"))
			}
			w.run(t.Context())
			if !tc.replaced {
				w.shown("db-0", corev1.PodRunning)
				require.Equal(t, "db:1", w.shadow("db-0").Spec.Pod.Containers[0].Image)
				return
			}
			w.withoutShadow("db-0") // It exists until the remote pod is gone.
			require.NotEqual(t, corev1.PodRunning, w.localPod("db-0").Status.Phase)
			w.remove(there.Name)
			require.Equal(t, "db:2", w.forwarded("db-0").Spec.Containers[0].Image)
			require.Equal(t, "next", w.shadow("db-0").Annotations[v1alpha1.PodUIDAnnotation])
		})
	}
}
