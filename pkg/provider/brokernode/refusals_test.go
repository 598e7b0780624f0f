package brokernode

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 500_000_000, time.UTC)

func refusalsOf(t *testing.T, client *fake.Clientset) *Refusals {
	t.Helper()
	return &Refusals{
		View: testView(), Pods: client.CoreV1().Pods, Clock: clocktesting.NewFakePassiveClock(noon), Log: testr.New(t),
	}
}

// assignedPod was assigned just before noon.
func assignedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid-a",
			Annotations: map[string]string{"brokering.liqo.io/assigned-at": noon.Add(-200 * time.Millisecond).Format(time.RFC3339Nano)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
}

func exceeded() error {
	return kerrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "a",
		errors.New("peering cpu quota usage exceeded - free 1 / requested 9"))
}

// alreadyRunning is what Liqo's webhook says of a ShadowPod that exists.
func alreadyRunning() error {
	return kerrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "a", errors.New("ShadowPod a is already running"))
}

func TestARefusedShadowPodIsToldTheBroker(t *testing.T) {
	shadows := schema.GroupResource{Resource: "shadowpods"}
	absent := kerrors.NewNotFound(shadows, "a")
	for name, tc := range map[string]struct {
		answer error
		// asked is what the provider says when asked whether it has the ShadowPod.
		asked error
		told  bool
	}{
		"the quota is exceeded":                       {exceeded(), absent, true},
		"the provider lets us do nothing":             {exceeded(), kerrors.NewForbidden(shadows, "a", errors.New("RBAC")), true},
		"the ShadowPod was made, and the answer lost": {alreadyRunning(), nil, false},
		"nobody knows whether the ShadowPod was made": {alreadyRunning(), kerrors.NewTimeoutError("etcd", 1), false},
		"the provider does not know":                  {kerrors.NewInternalError(errors.New("etcd")), absent, false},
		"the ShadowPod is there":                      {kerrors.NewAlreadyExists(shadows, "a"), nil, false},
		"the ShadowPod is taken over":                 {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := assignedPod()
			client, liqo := fake.NewClientset(pod), liqofake.NewSimpleClientset()
			liqo.PrependReactor("create", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return tc.answer != nil, nil, tc.answer
			})
			liqo.PrependReactor("get", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, &offloadingv1beta1.ShadowPod{}, tc.asked
			})
			lens := refusalsOf(t, client).ShadowPods(liqo, corev1listers.NewPodLister(indexed(t, pod)).Pods("ns"))
			_, err := lens.OffloadingV1beta1().ShadowPods("ns-home").Create(t.Context(),
				&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			require.Equal(t, tc.answer, err, "Liqo makes its event, and tries again")

			now, err := client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			if !tc.told {
				require.Equal(t, pod.Status, now.Status)
				return
			}
			require.Len(t, now.Status.Conditions, 2)
			condition := now.Status.Conditions[1]
			if condition.Type == corev1.PodScheduled {
				condition = now.Status.Conditions[0]
			}
			require.True(t, condition.LastTransitionTime.Time.Equal(noon.Truncate(time.Second)))
			condition.LastTransitionTime = metav1.Time{}
			require.Equal(t, corev1.PodCondition{
				Type: "brokering.liqo.io/Refused", Status: corev1.ConditionTrue, Reason: "Forbidden",
				Message: "p1-gpu: " + tc.answer.Error(),
			}, condition)

			patch := client.Actions()[0].(k8stesting.PatchAction)
			require.Equal(t, types.StrategicMergePatchType, patch.GetPatchType())
			require.Equal(t, "status", patch.GetSubresource())
			require.Contains(t, string(patch.GetPatch()), `"metadata":{"uid":"uid-a"}`)
		})
	}
}

func TestARefusalIsToldOncePerAssignment(t *testing.T) {
	refused := func(at time.Time, message string, status corev1.ConditionStatus) *corev1.Pod {
		pod := assignedPod()
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: "brokering.liqo.io/Refused", Status: status, Reason: "Forbidden", Message: message,
			LastTransitionTime: metav1.NewTime(at.Truncate(time.Second)),
		}}
		return pod
	}
	withoutTime := refused(noon.Add(-time.Hour), "p1-gpu: full", corev1.ConditionTrue)
	withoutTime.Annotations = nil
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		tells bool
	}{
		"refused for the first time":                   {assignedPod(), true},
		"refused in the second of the assignment":      {refused(noon, "p1-gpu: full", corev1.ConditionTrue), false},
		"refused before, and assigned again":           {refused(noon.Add(-time.Second), "p1-gpu: full", corev1.ConditionTrue), true},
		"refused by another VirtualNode before":        {refused(noon, "p2: full", corev1.ConditionTrue), true},
		"refused for another reason":                   {refused(noon, "p1-gpu: fuller", corev1.ConditionTrue), true},
		"somebody says that it is not":                 {refused(noon, "p1-gpu: full", corev1.ConditionFalse), true},
		"refused before, and no telling when assigned": {withoutTime, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.pod)
			refusals := refusalsOf(t, client)
			var counted []string
			refusals.Told = func(reason string) { counted = append(counted, reason) }
			require.NoError(t, refusals.tell(t.Context(), tc.pod, ReasonForbidden, "full"))
			require.Equal(t, tc.tells, len(client.Actions()) == 1)
			require.Equal(t, tc.tells, len(counted) == 1, counted)
		})
	}
}

func TestAFailureToTellIsNoFailureOfTheRequest(t *testing.T) {
	client, liqo := fake.NewClientset(), liqofake.NewSimpleClientset()
	liqo.PrependReactor("create", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, exceeded()
	})
	create := func(pods ...*corev1.Pod) error {
		lens := refusalsOf(t, client).ShadowPods(liqo, corev1listers.NewPodLister(indexed(t, pods...)).Pods("ns"))
		_, err := lens.OffloadingV1beta1().ShadowPods("ns-home").Create(t.Context(),
			&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		return err
	}
	require.Equal(t, exceeded(), create(assignedPod()), "the API server has no such pod any more")
	require.Equal(t, exceeded(), create(), "the pod has left the view")
}

type rejecting struct {
	manager.FallbackReflector
	rejected []string
}

func (r *rejecting) Handle(_ context.Context, pod types.NamespacedName) error {
	r.rejected = append(r.rejected, pod.Name)
	return nil
}

func TestPodsOfNamespacesThatAreNotOffloadedGoElsewhere(t *testing.T) {
	now := metav1.Now()
	pending, running, done, deleted := assignedPod(), assignedPod(), assignedPod(), assignedPod()
	running.Name, running.Status.Phase = "running", corev1.PodRunning
	done.Name, done.Status.Phase = "done", corev1.PodFailed
	deleted.Name, deleted.DeletionTimestamp = "deleted", &now

	client, liqo := fake.NewClientset(pending, running, done), &rejecting{}
	pods := corev1listers.NewPodLister(indexed(t, pending, running, done, deleted))
	fallback := refusalsOf(t, client).Fallback(liqo, pods)
	for _, name := range []string{"a", "running", "done", "deleted", "vanished"} {
		require.NoError(t, fallback.Handle(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}))
	}
	require.Equal(t, []string{"done", "deleted", "vanished"}, liqo.rejected, "Liqo rejects none that could still run")

	for _, name := range []string{"a", "running"} {
		pod, err := client.CoreV1().Pods("ns").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		var messages []string
		for _, condition := range pod.Status.Conditions {
			if condition.Type == "brokering.liqo.io/Refused" && condition.Reason == "NamespaceNotOffloaded" {
				messages = append(messages, condition.Message)
			}
		}
		require.Equal(t, []string{"p1-gpu: namespace ns is not offloaded to this provider cluster"}, messages)
	}

	require.NoError(t, client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	err := fallback.Handle(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"})
	require.True(t, kerrors.IsNotFound(err), "what could not be told is tried again")
}
