package pods

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Pods that wait, however many and however slow their reports are written, leave the workers to the pods that can be
// assigned.
func TestReportsDoNotHoldUpAssignments(t *testing.T) {
	large := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large", UID: "large"},
		Spec:       corev1.PodSpec{Containers: cpus("3")},
	}
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "small", UID: "small"},
		Spec:       corev1.PodSpec{Containers: cpus("1")},
	}
	writes, answer := 0, error(nil)
	c := newController(t, true, interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if writes++; answer != nil {
				return answer
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}, nil, large, small)
	report := func(name string) ctrl.Result {
		t.Helper()
		result, err := c.reports.Write(t.Context(), types.NamespacedName{Namespace: "ns", Name: name})
		require.NoError(t, err)
		return result
	}
	events := c.Events.(*record.FakeRecorder).Events

	c.reconciled(t, "large")
	require.Zero(t, writes, "its reconciliation writes nothing")
	assigned, _ := c.reconciled(t, "small")
	require.Equal(t, "q1", assigned.Labels[v1alpha1.VirtualNodeLabel])

	answer = kerrors.NewConflict(schema.GroupResource{Resource: "pods"}, "large", nil)
	require.Equal(t, requeue.FirstConflict, report("large").RequeueAfter)
	require.Equal(t, 2*requeue.FirstConflict, report("large").RequeueAfter)
	answer = nil
	<-events // The event of the assignment.
	require.Empty(t, events, "nothing was written yet")
	require.Zero(t, report("large"))
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKeyFromObject(large), &pod))
	require.Equal(t, "NoProviderFits", placement.Condition(&pod, v1alpha1.ConditionAssigned).Reason)
	require.Contains(t, <-events, "FailedAssignment")
	require.Zero(t, report("large"))
	require.Equal(t, 3, writes, "it is written once")

	// A report that is no longer true is not written.
	c.reports.Add(small, "NoProviderFits", "of before its assignment")
	c.reports.Add(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large", UID: "other"}},
		"NoProviderFits", "of another pod",
	)
	c.reports.Add(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone", UID: "gone"}},
		"NoProviderFits", "of a pod that is gone",
	)
	for _, name := range []string{"small", "large", "gone"} {
		report(name)
	}
	require.Equal(t, 3, writes)
	c.reconciled(t, "large")
	report("large")
	require.Equal(t, 3, writes, "the pod has that reason already")
}

// A pod may have no space for the annotations of the broker: it is reported, its capacity is freed, and it is not
// retried at once.
func TestAPodWhoseAssignmentIsInvalidWaits(t *testing.T) {
	full := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "full", UID: "full"},
		Spec:       corev1.PodSpec{Containers: cpus("2")},
	}
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", UID: "other"},
		Spec:       corev1.PodSpec{Containers: cpus("2")},
	}
	c := newController(t, true, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "full" {
				tooLong := field.TooLong(field.NewPath("metadata", "annotations"), "", 1<<18)
				return kerrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "full", field.ErrorList{tooLong})
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}, nil, full, other)
	_, result := c.reconciled(t, "full")
	require.Equal(t, invalidRecheck, result.RequeueAfter)
	_, err := c.reports.Write(t.Context(), client.ObjectKeyFromObject(full))
	require.NoError(t, err)
	why := placement.Condition(c.current(t, "full"), v1alpha1.ConditionAssigned)
	require.Equal(t, "InvalidAssignment", why.Reason)
	require.Contains(t, why.Message, "the assignment cannot be written")
	require.Contains(t, why.Message, "metadata.annotations: Too long: may not be more than 262144 bytes")
	assigned, _ := c.reconciled(t, "other")
	require.Equal(t, "q1", assigned.Labels[v1alpha1.VirtualNodeLabel])
}

// A tenant may write 256 KiB into an annotation, and control characters, which are four characters each where they are
// quoted.
func TestWhatATenantWroteIsCutInMessages(t *testing.T) {
	for _, annotation := range []string{v1alpha1.PolicyAnnotation, v1alpha1.FailoverAnnotation, v1alpha1.FilterAnnotation} {
		fat := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fat", UID: "fat", Annotations: map[string]string{
				annotation: strings.Repeat("\x01", 50_000),
			}},
			Spec: corev1.PodSpec{Containers: cpus("1")},
		}
		writes := 0
		c := newController(t, true, interceptor.Funcs{
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
			) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}, nil, fat)
		events := c.Events.(*record.FakeRecorder).Events
		c.reconciled(t, "fat")
		why := c.reported(t, "fat")
		require.Equal(t, "InvalidCriteria", why.Reason, annotation)
		require.Contains(t, why.Message, annotation)
		require.LessOrEqual(t, len(why.Message), untrusted.MaxText, annotation)
		require.NotContains(t, why.Message, "\x01", annotation)
		require.LessOrEqual(t, len(<-events), untrusted.MaxText+len("Warning FailedAssignment "), annotation)

		// A report that is already written is not written again, and another value of the annotation is no event.
		c.reconciled(t, "fat")
		c.reported(t, "fat")
		require.Equal(t, 1, writes, annotation)
		other := c.current(t, "fat")
		other.Annotations[annotation] = "also wrong"
		require.NoError(t, c.Client.Update(t.Context(), other))
		c.reconciled(t, "fat")
		require.NotEqual(t, why.Message, c.reported(t, "fat").Message)
		require.Empty(t, events)
	}
}

// The minute of a message that is added while the previous one is written begins then.
func TestAMessageIsNotWrittenRightAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large", UID: "large"},
			Spec:       corev1.PodSpec{Containers: cpus("3")},
		}
		during := func() {}
		c := newController(t, true, interceptor.Funcs{
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
			) error {
				during()
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}, nil, large)
		c.reports.Add(large, "NoProviderFits", "first")
		require.Equal(t, "first", c.reported(t, "large").Message)
		c.reports.Add(large, "NoProviderFits", "second")
		time.Sleep(time.Minute)
		during = func() { c.reports.Add(large, "NoProviderFits", "third") }
		require.Equal(t, "second", c.reported(t, "large").Message)
		during = func() {}
		require.Equal(t, "second", c.reported(t, "large").Message)
		time.Sleep(time.Minute)
		require.Equal(t, "third", c.reported(t, "large").Message)
	})
}

// With thousands of pods that wait, each flap of a provider would be thousands of writes.
func TestAFlapIsNotWrittenOnPodsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large", UID: "large"},
			Spec:       corev1.PodSpec{Containers: cpus("3")},
		}
		writes := 0
		c := newController(t, true, interceptor.Funcs{
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
			) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}, nil, large)
		provider := func(id string, ready bool, milli int64) {
			spec := state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{id + "1": false}}
			c.State.SetProvider(id, spec, &v1alpha1.ProviderClusterStatus{})
			c.State.Schedule(scheduler.Provider{
				ID: id, Enabled: true, Ready: ready, Namespaces: sets.New("ns"),
				Slices: []scheduler.Slice{{VirtualNode: id + "1", Granted: resources.Amounts{corev1.ResourceCPU: milli}}},
			})
		}
		message := func() string { return c.reported(t, "large").Message }
		provider("r", true, 1000)
		c.reconciled(t, "large")
		require.Equal(t, "no provider cluster fits: insufficient cpu", message())
		require.Equal(t, 1, writes)

		// Another provider of the same kind is not reported again, nor is one that comes and goes.
		provider("s", true, 1000)
		for range 20 {
			for _, ready := range []bool{false, true} {
				provider("r", ready, 1000)
				c.reconciled(t, "large")
				message()
				time.Sleep(40 * time.Second)
			}
		}
		require.Equal(t, 1, writes)

		provider("r", false, 1000)
		c.reconciled(t, "large")
		require.Equal(t, "no provider cluster fits: insufficient cpu", message())
		time.Sleep(40 * time.Second)
		provider("s", false, 1000)
		c.reconciled(t, "large")
		time.Sleep(40 * time.Second)
		require.Equal(t, "no provider cluster fits: insufficient cpu, not ready", message(), "it has been so for more than a minute")
		require.Equal(t, 2, writes)

		// A report from before an assignment says nothing about the pod now.
		moved := c.current(t, "large")
		moved.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: time.Now().Add(time.Second).Format(time.RFC3339Nano)}
		require.NoError(t, c.Client.Update(t.Context(), moved))
		time.Sleep(2 * time.Second)
		for _, id := range []string{"r", "s"} {
			provider(id, true, 1000)
		}
		c.reconciled(t, "large")
		require.Equal(t, "no provider cluster fits: insufficient cpu", message())
		require.Equal(t, 3, writes)
	})
}
