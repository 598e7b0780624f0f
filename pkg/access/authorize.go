package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
)

const (
	// The answers are kept as long as the real kubelet keeps them (authorization.webhook).
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	// keptAnswers bounds the memory of a caller that asks for ever new things.
	keptAnswers = 1024
)

// Reviewer asks the API server (SubjectAccessReview) what callers may do, and remembers its answers for a while.
type Reviewer struct {
	local   kubernetes.Interface
	remedy  string
	answers *cache.LRUExpireCache
}

// NewReviewer asks local; remedy is what to do if it may not, for the error.
func NewReviewer(local kubernetes.Interface, remedy string) *Reviewer {
	return &Reviewer{local: local, remedy: remedy, answers: cache.NewLRUExpireCache(keptAnswers)}
}

// MissingPermissionError says that this process may not ask the API server about its callers, and what to do.
type MissingPermissionError struct{ Remedy string }

func (e *MissingPermissionError) Error() string {
	return "this process may not ask the API server about its callers, which is granted by '" + e.Remedy + "'"
}

// Authorize says whether a caller has one of the permissions. It returns an error that is a *MissingPermissionError if this process may not ask.
func (a *Reviewer) Authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error) {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return true, nil // As every authorizer of Kubernetes does, before asking anybody.
	}
	for i := range anyOf {
		allowed, err := a.review(ctx, who, &anyOf[i])
		if err != nil || allowed {
			return allowed, err
		}
	}
	return false, nil
}

func (a *Reviewer) review(ctx context.Context, who user.Info, what *authorizationv1.ResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), ResourceAttributes: what,
	}
	if extra := who.GetExtra(); len(extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(extra))
		for key, values := range extra {
			spec.Extra[key] = values
		}
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	key := sha256.Sum256(question)
	if answer, known := a.answers.Get(key); known {
		return answer.(bool), nil
	}

	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := a.local.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case kerrors.IsForbidden(err):
		return false, &MissingPermissionError{Remedy: a.remedy}
	case err != nil:
		return false, fmt.Errorf("subject access review: %w", err)
	}
	ttl := deniedTTL
	if review.Status.Allowed {
		ttl = allowedTTL
	}
	a.answers.Add(key, review.Status.Allowed, ttl)
	return review.Status.Allowed, nil
}
