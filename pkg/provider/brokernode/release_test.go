package brokernode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAPodThatLeftIsReleasedOnce(t *testing.T) {
	now := metav1.Now()
	assigned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "uid", Annotations: map[string]string{v1alpha1.AssignedAtAnnotation: "noon"},
	}}
	deleted := assigned.DeepCopy()
	deleted.DeletionTimestamp = &now
	var none []string
	once := []string{`{"metadata":{"annotations":{"brokering.liqo.io/released":"q1/noon"},"uid":"uid"}}`}
	never := []string{
		`{"metadata":{"annotations":{"brokering.liqo.io/not-forwarded":"q1/noon","brokering.liqo.io/released":"q1/noon"},"uid":"uid"}}`,
	}
	taken := kerrors.NewAlreadyExists(schema.GroupResource{}, "a")
	for name, tc := range map[string]struct {
		// seen are the states of the pod while it was assigned.
		seen []*corev1.Pod
		// created are the results of creations of its ShadowPod.
		created []error
		want    []string
	}{
		"it was forwarded": {[]*corev1.Pod{assigned, assigned}, []error{nil}, once},
		"it was refused": {
			[]*corev1.Pod{assigned}, []error{kerrors.NewForbidden(schema.GroupResource{}, "a", errors.New("quota"))}, never,
		},
		"it was not forwarded in time":        {[]*corev1.Pod{assigned}, nil, never},
		"it was not sent":                     {[]*corev1.Pod{assigned}, []error{fmt.Errorf("%w: %w", errUnsent, context.Canceled)}, never},
		"it was never seen":                   {nil, nil, none},
		"it was deleted":                      {[]*corev1.Pod{assigned, deleted}, []error{nil}, none},
		"its creation has no answer":          {[]*corev1.Pod{assigned}, []error{context.DeadlineExceeded}, none},
		"the API server took too long for it": {[]*corev1.Pod{assigned}, []error{kerrors.NewTimeoutError("slow", 1)}, none},
		"a proxy answered for it":             {[]*corev1.Pod{assigned}, []error{answered(http.StatusBadGateway)}, none},
		"the API server failed after it":      {[]*corev1.Pod{assigned}, []error{kerrors.NewInternalError(errors.New("etcd"))}, none},
		"it was refused by its content":       {[]*corev1.Pod{assigned}, []error{answered(http.StatusUnprocessableEntity)}, never},
		"it was forwarded, and refused later": {[]*corev1.Pod{assigned, assigned}, []error{nil, answered(http.StatusForbidden)}, once},
		"it had none, and was refused the next time": {
			[]*corev1.Pod{assigned},
			[]error{context.DeadlineExceeded, kerrors.NewForbidden(schema.GroupResource{}, "a", errors.New("quota"))},
			none,
		},
		"it had none, and was there the next time": {[]*corev1.Pod{assigned}, []error{context.DeadlineExceeded, taken}, once},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(assigned.DeepCopy())
			var patches []string
			client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patches = append(patches, string(action.(clienttesting.PatchAction).GetPatch()))
				return false, nil, nil
			})
			r := (&Forwarder{View: View{VirtualNode: "q1"}, Pods: client.CoreV1().Pods}).releasesOf("ns")
			for _, pod := range tc.seen {
				r.observe(pod, false)
			}
			for _, err := range tc.created {
				r.observeCreate("a", err)
			}
			require.NoError(t, r.release(t.Context(), "a"))
			require.NoError(t, r.release(t.Context(), "a"))
			require.Equal(t, tc.want, patches)
		})
	}
}

// answered returns the error for an answer with the status code.
func answered(code int) error {
	return kerrors.NewGenericServerResponse(code, "post", schema.GroupResource{}, "a", "", 0, true)
}

func TestAReleaseThatFailsIsTriedAgain(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}}
	client := fake.NewClientset(pod.DeepCopy())
	answer := errors.New("the API server is away")
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return answer != nil, nil, answer
	})
	r := (&Forwarder{View: View{VirtualNode: "q1"}, Pods: client.CoreV1().Pods}).releasesOf("ns")
	r.observe(pod, false)
	require.ErrorIs(t, r.release(t.Context(), "a"), answer)
	answer = nil
	require.NoError(t, r.release(t.Context(), "a"))
	released, err := client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, v1alpha1.Assignment("q1", pod), released.Annotations[v1alpha1.ReleasedAnnotation])

	r.observe(pod, false)
	answer = kerrors.NewConflict(schema.GroupResource{}, "a", errors.New("another UID"))
	require.NoError(t, r.release(t.Context(), "a"), "another pod of its name")
}

func TestNamespacesThatAreNotReflectedAnyMoreAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Forwarder{View: View{VirtualNode: "q1"}, Pods: fake.NewClientset().CoreV1().Pods}
		for i := range 100 {
			name := fmt.Sprintf("ns-%d", i)
			f.releasesOf(name).observe(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "a", UID: "uid"}}, false)
			f.StopNamespace(name)
		}
		require.Empty(t, f.releases)

		// A ShadowPod may still be created there. This is remembered when the namespace is reflected again.
		f.releasesOf("uncertain").observeCreate("a", context.DeadlineExceeded)
		f.StopNamespace("uncertain")
		require.Contains(t, f.releasesOf("uncertain").uncertain, "a")
		f.StopNamespace("uncertain")
		time.Sleep(v1alpha1.CreationDeadline)
		f.startNamespace("reflected")
		f.StopNamespace("another")
		require.Len(t, f.releases, 1)
		require.Contains(t, f.releases, "reflected")
	})
}
