package interrupted

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestAnErrorOfAContextIsReturned(t *testing.T) {
	conflict := kerrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", errors.New("changed"))
	backoff := wait.Backoff{Steps: 3}
	for name, answers := range map[string][]error{
		"at once":                {context.DeadlineExceeded},
		"wrapped":                {fmt.Errorf("get: %w", context.Canceled)},
		"after a conflict":       {conflict, context.DeadlineExceeded},
		"of too many conflicts":  {conflict, conflict, conflict},
		"none after a conflict":  {conflict, nil},
		"none":                   {nil},
		"one that is not raised": {errors.New("forbidden")},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := OnError(backoff, kerrors.IsConflict, func() error {
				calls++
				return answers[calls-1]
			})
			require.Equal(t, len(answers), calls)
			require.Equal(t, answers[len(answers)-1], err)
		})
	}
}

func TestNodesReturnNoErrorsOfContexts(t *testing.T) {
	kube := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	fails := func(err error) {
		kube.PrependReactor("*", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	nodes := Nodes(kube.CoreV1().Nodes())
	_, err := nodes.Get(t.Context(), "n", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = nodes.Get(t.Context(), "another", metav1.GetOptions{})
	require.True(t, kerrors.IsNotFound(err))

	fails(fmt.Errorf("no answer: %w", context.DeadlineExceeded))
	for _, ask := range []func() error{
		func() error { _, err := nodes.Get(t.Context(), "n", metav1.GetOptions{}); return err },
		func() error {
			_, err := nodes.Patch(t.Context(), "n", "", nil, metav1.PatchOptions{}, "status")
			return err
		},
	} {
		err := ask()
		require.EqualError(t, err, "no answer: context deadline exceeded")
		require.False(t, wait.Interrupted(err))
	}
}
