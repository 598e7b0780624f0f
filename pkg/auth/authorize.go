package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"
)

const (
	// The answers are cached as long as in the real kubelet (authorization.webhook).
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	// keptAnswers is for each caller, so that a caller with more reviews evicts its own answers only; keptCallers
	// bounds all.
	keptAnswers = 256
	keptCallers = 1024
)

// Reviewer authorises callers by SubjectAccessReview, and caches the answers.
type Reviewer struct {
	local  kubernetes.Interface
	remedy string
	spend  func(who user.Info) error
	asking flight[bool]

	mu      sync.Mutex
	answers *lru.Cache // By the caller's name, *cache.LRUExpireCache; guarded by mu.
}

// NewReviewer creates reviews in local. An error names the remedy if this process may not.
func NewReviewer(local kubernetes.Interface, remedy string) *Reviewer {
	return NewLimitedReviewer(local, remedy, func(user.Info) error { return nil })
}

// NewLimitedReviewer returns a Reviewer that calls spend before each review, and returns its error instead of
// reviewing. Cached answers cost nothing.
func NewLimitedReviewer(local kubernetes.Interface, remedy string, spend func(who user.Info) error) *Reviewer {
	return &Reviewer{local: local, remedy: remedy, spend: spend, answers: lru.New(keptCallers)}
}

// MissingPermissionError is returned when this process may not review its callers. It names the remedy.
type MissingPermissionError struct{ Remedy string }

func (e *MissingPermissionError) Error() string {
	return "this process may not create TokenReviews or SubjectAccessReviews, run '" + e.Remedy + "' to allow it"
}

// Authorize reports whether a caller has one of the permissions. The error is a *MissingPermissionError if this process
// may not create SubjectAccessReviews.
func (a *Reviewer) Authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error) {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return true, nil // As in every authorizer of Kubernetes.
	}
	for i := range anyOf {
		allowed, err := a.decide(ctx, who, &anyOf[i], a.review)
		if err != nil || allowed {
			return allowed, err
		}
	}
	return false, nil
}

// Refuse is Authorize for an object that does not exist: it is denied without a review. It costs the caller the same as
// a denied review, so that the cost does not show which objects exist.
func (a *Reviewer) Refuse(ctx context.Context, who user.Info, what *authorizationv1.ResourceAttributes) error {
	_, err := a.decide(ctx, who, what, func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		return false, nil
	})
	return err
}

// decide returns the cached answer, or the answer of one review for all concurrent requests with the same question.
func (a *Reviewer) decide(ctx context.Context, who user.Info, what *authorizationv1.ResourceAttributes,
	by func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error),
) (bool, error) {
	spec := specOf(who, what)
	question, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	key, known := sha256.Sum256(question), a.known(who.GetName())
	if answer, ok := known.Get(key); ok {
		return answer.(bool), nil
	}
	return a.asking.Do(ctx, key, func(ctx context.Context) (bool, error) {
		if err := a.spend(who); err != nil {
			return false, err
		}
		allowed, err := by(ctx, spec)
		if err != nil {
			return false, err
		}
		ttl := deniedTTL
		if allowed {
			ttl = allowedTTL
		}
		known.Add(key, allowed, ttl)
		return allowed, nil
	})
}

// known returns the cached answers about a caller.
func (a *Reviewer) known(caller string) *cache.LRUExpireCache {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answers, ok := a.answers.Get(caller); ok {
		return answers.(*cache.LRUExpireCache)
	}
	fresh := cache.NewLRUExpireCache(keptAnswers)
	a.answers.Add(caller, fresh)
	return fresh
}

func specOf(who user.Info, what *authorizationv1.ResourceAttributes) *authorizationv1.SubjectAccessReviewSpec {
	spec := &authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), ResourceAttributes: what,
	}
	if extra := who.GetExtra(); len(extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(extra))
		for key, values := range extra {
			spec.Extra[key] = values
		}
	}
	return spec
}

func (a *Reviewer) review(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	review, err := a.local.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: *spec}, metav1.CreateOptions{})
	switch {
	case kerrors.IsForbidden(err):
		return false, &MissingPermissionError{Remedy: a.remedy}
	case err != nil:
		return false, fmt.Errorf("subject access review: %w", err)
	}
	return review.Status.Allowed, nil
}
