package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// apiServer allows everything in namespace "mine", after wait.
func apiServer(wait func()) *fake.Clientset {
	kube := fake.NewSimpleClientset()
	kube.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		wait()
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.ResourceAttributes.Namespace == "mine"
		return true, review, nil
	})
	return kube
}

func may(t *testing.T, r *Reviewer, who, namespace string) bool {
	t.Helper()
	ok, err := r.Authorize(t.Context(), &user.DefaultInfo{Name: who}, []authorizationv1.ResourceAttributes{{Namespace: namespace}})
	require.NoError(t, err)
	return ok
}

func TestACallerForgetsNobodyElsesAnswers(t *testing.T) {
	kube := apiServer(func() {})
	r := NewReviewer(kube, "")
	require.True(t, may(t, r, "ann", "mine"))
	for i := range 2 * keptCallers {
		require.False(t, may(t, r, "bob", fmt.Sprint("namespace-", i)))
	}
	kube.ClearActions()
	require.True(t, may(t, r, "ann", "mine"))
	require.Empty(t, kube.Actions(), "hers is still known")
	require.False(t, may(t, r, "bob", "namespace-0"))
	require.Len(t, kube.Actions(), 1, "he has asked for more than is kept of one")
}

func TestOnlyReviewsAreSpent(t *testing.T) {
	kube, left, spent := apiServer(func() {}), 2, errors.New("nothing is left")
	r := NewLimitedReviewer(kube, "", func(who user.Info) error {
		require.Equal(t, "ann", who.GetName())
		if left--; left < 0 {
			return spent
		}
		return nil
	})
	ann := &user.DefaultInfo{Name: "ann"}
	for range 5 {
		require.True(t, may(t, r, "ann", "mine"))
		require.NoError(t, r.Refuse(t.Context(), ann, &authorizationv1.ResourceAttributes{Namespace: "none"}))
	}
	require.Zero(t, left, "answers that are known cost nothing, and what does not exist costs the same as what does")
	require.Len(t, kube.Actions(), 1, "nobody is asked about what does not exist")

	require.ErrorIs(t, r.Refuse(t.Context(), ann, &authorizationv1.ResourceAttributes{Namespace: "neither"}), spent)
	_, err := r.Authorize(t.Context(), ann, []authorizationv1.ResourceAttributes{{Namespace: "another"}})
	require.ErrorIs(t, err, spent)
	require.True(t, may(t, r, "ann", "mine"))
	require.Len(t, kube.Actions(), 1)
}

func TestOneReviewAnswersAllWhoAskTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, spent := make(chan struct{}), 0
		kube := apiServer(func() { <-answer })
		r := NewLimitedReviewer(kube, "", func(user.Info) error {
			spent++
			return nil
		})
		impatient, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for n := range 5 {
			wg.Go(func() {
				ctx := t.Context()
				if n == 0 {
					ctx = impatient
				}
				ok, err := r.Authorize(ctx, &user.DefaultInfo{Name: "ann"}, []authorizationv1.ResourceAttributes{{Namespace: "mine"}})
				if n == 0 && !errors.Is(err, context.Canceled) || n > 0 && (err != nil || !ok) {
					t.Errorf("%d: %v, %v", n, ok, err)
				}
			})
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		close(answer)
		wg.Wait()
		require.Len(t, kube.Actions(), 1)
		require.Equal(t, 1, spent)
	})
}
