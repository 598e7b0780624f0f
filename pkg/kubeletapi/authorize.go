package kubeletapi

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

// AuthorizationMode says who decides whether an authenticated caller may do what it asks for.
type AuthorizationMode string

// The values of --kubelet-authorization-mode.
const (
	// AuthorizationWebhook asks the API server (SubjectAccessReview).
	AuthorizationWebhook AuthorizationMode = "Webhook"
	// AuthorizationAlwaysAllow lets every authenticated caller do everything.
	AuthorizationAlwaysAllow AuthorizationMode = "AlwaysAllow"
)

const (
	// The answers are kept as long as the real kubelet keeps them (authorization.webhook).
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	// keptAnswers bounds the memory of a caller that asks for ever new things.
	keptAnswers = 1024
)

// authorizer decides whether a caller has one of the permissions.
type authorizer interface {
	authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error)
}

type alwaysAllow struct{}

func (alwaysAllow) authorize(context.Context, user.Info, []authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// accessReviewer asks the API server, and remembers its answers for a while.
type accessReviewer struct {
	local   kubernetes.Interface
	remedy  string
	answers *cache.LRUExpireCache
}

func newAccessReviewer(local kubernetes.Interface, remedy string) *accessReviewer {
	return &accessReviewer{local: local, remedy: remedy, answers: cache.NewLRUExpireCache(keptAnswers)}
}

// authorize returns an error that is a *missingPermissionError if this process may not ask.
func (a *accessReviewer) authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error) {
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

func (a *accessReviewer) review(ctx context.Context, who user.Info, what *authorizationv1.ResourceAttributes) (bool, error) {
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
		return false, &missingPermissionError{remedy: a.remedy}
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
