// Package orchestrator stores the providers that each consumer selected: in a PlacementPolicy of a well-known name for
// each consumer, so that the selection survives restarts, is visible to kubectl, and is followed by the broker
// (spec.selection).
package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/interrupted"
)

// timeout bounds all the requests of one call.
const timeout = 10 * time.Second

// ErrNameTaken means that the policy of the well-known name is not the consumer's selection.
var ErrNameTaken = errors.New("the name of the selection is taken")

// PolicyName is the name of the PlacementPolicy that keeps the selection of a consumer, by its cluster id.
func PolicyName(consumer string) string { return "selection-" + consumer }

// Get reads the selection of a consumer, a cluster id: its Has reports whether a provider is selected. A consumer that
// never selected anything has all providers; the result is then nil, whose Has returns true.
//
// Other selections of the consumer, in policies that people wrote, count for its pods too, but are not shown.
func Get(ctx context.Context, c client.Reader, consumer string) (*v1alpha1.Selection, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := validate("consumer", consumer); err != nil {
		return nil, err
	}
	policy, err := read(ctx, c, consumer)
	if err != nil || policy == nil {
		return nil, err
	}
	return policy.Spec.Selection, nil
}

// Set selects or deselects a provider for a consumer, both by cluster id. It writes only a change, and retries a few
// times after a conflict; the client should read the API rather than a cache. It returns ErrNameTaken, or an error if
// an id is invalid.
func Set(ctx context.Context, c client.Client, consumer, provider string, enabled bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := validate("consumer", consumer); err != nil {
		return err
	}
	if err := validate("provider", provider); err != nil {
		return err
	}
	raced := func(err error) bool { return kerrors.IsConflict(err) || kerrors.IsAlreadyExists(err) }
	err := interrupted.OnError(retry.DefaultBackoff, raced, func() error {
		policy, err := read(ctx, c, consumer)
		if err != nil {
			return err
		}
		if policy == nil {
			policy = fresh(consumer)
		}
		if policy.Spec.Selection.Has(provider) == enabled {
			return nil
		}
		toggle(policy.Spec.Selection, provider)
		if policy.ResourceVersion == "" {
			return c.Create(ctx, policy)
		}
		return c.Update(ctx, policy)
	})
	if err != nil {
		return fmt.Errorf("selection of consumer %s: %w", consumer, err)
	}
	return nil
}

// read returns the policy that keeps a consumer's selection; nil if there is none.
func read(ctx context.Context, c client.Reader, consumer string) (*v1alpha1.PlacementPolicy, error) {
	var policy v1alpha1.PlacementPolicy
	err := c.Get(ctx, client.ObjectKey{Name: PolicyName(consumer)}, &policy)
	switch {
	case kerrors.IsNotFound(err):
		return nil, nil // None is an answer.
	case err != nil:
		return nil, fmt.Errorf("PlacementPolicy %s: %w", PolicyName(consumer), err)
	case policy.Spec.Selection == nil || !slices.Equal(policy.Spec.Consumers, []string{consumer}):
		return nil, fmt.Errorf("%w: PlacementPolicy %s is not the selection of consumer %s alone: recreate it under another name",
			ErrNameTaken, policy.Name, consumer)
	}
	return &policy, nil
}

// fresh is the selection of a consumer with all providers.
func fresh(consumer string) *v1alpha1.PlacementPolicy {
	return &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name: PolicyName(consumer), Labels: map[string]string{consts.K8sAppManagedByKey: v1alpha1.ManagedByBroker},
		},
		Spec: v1alpha1.PlacementPolicySpec{
			Consumers: []string{consumer}, Selection: &v1alpha1.Selection{Mode: v1alpha1.SelectAllBut},
		},
	}
}

// toggle inverts the selection of one provider, in both modes: it adds it to the list or removes it.
func toggle(s *v1alpha1.Selection, provider string) {
	if slices.Contains(s.Providers, provider) {
		s.Providers = slices.DeleteFunc(s.Providers, func(id string) bool { return id == provider })
		return
	}
	s.Providers = append(s.Providers, provider)
	slices.Sort(s.Providers)
}

// validate checks a cluster id: it becomes part of a name, and comes from outside.
func validate(what, id string) error {
	if problems := validation.IsDNS1123Label(id); len(problems) > 0 {
		return fmt.Errorf("%s %q is not a cluster id: %s", what, id, strings.Join(problems, "; "))
	}
	return nil
}
