package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/selection"
)

// change is what a person decides about a provider.
type change struct {
	// done is the word for it.
	done string
	// already tells that nothing is to be written.
	already func(*v1alpha1.ProviderCluster) bool
	// spec is the merge patch of the spec: nothing else is touched.
	spec map[string]any
	// on tells that the person wants the provider to get pods.
	on bool
}

// Enable lets providers take part, or no longer: they get no new pods then, and keep those that they have.
func (s *Session) Enable(ctx context.Context, providers []string, enable bool) error {
	c := change{
		done: "disabled", spec: map[string]any{"enabled": enable}, on: enable,
		already: func(pc *v1alpha1.ProviderCluster) bool { return enabled(pc) == enable },
	}
	if enable {
		c.done = "enabled"
	}
	return s.changeAll(ctx, providers, c)
}

// Cordon keeps new pods away from providers for a while.
func (s *Session) Cordon(ctx context.Context, providers []string) error {
	return s.changeAll(ctx, providers, change{
		done: "cordoned", spec: map[string]any{"cordoned": true},
		already: func(pc *v1alpha1.ProviderCluster) bool { return pc.Spec.Cordoned },
	})
}

// Uncordon ends what Cordon and Drain began.
func (s *Session) Uncordon(ctx context.Context, providers []string) error {
	return s.changeAll(ctx, providers, change{
		done: "uncordoned", spec: map[string]any{"cordoned": nil, "drain": nil}, on: true,
		already: func(pc *v1alpha1.ProviderCluster) bool { return !pc.Spec.Cordoned && !pc.Spec.Drain },
	})
}

func (s *Session) changeAll(ctx context.Context, providers []string, c change) error {
	var failures []error
	for _, id := range providers {
		pc, err := s.change(ctx, id, c)
		if err != nil {
			failures = append(failures, err)
		} else if c.on {
			s.warnNotYet(pc)
		}
	}
	return errors.Join(failures...)
}

// change returns the provider as it is then.
func (s *Session) change(ctx context.Context, id string, c change) (*v1alpha1.ProviderCluster, error) {
	var pc v1alpha1.ProviderCluster
	if err := s.get(ctx, client.ObjectKey{Name: id}, &pc); err != nil {
		return nil, err
	}
	if c.already(&pc) {
		return &pc, s.say(&pc, "already "+c.done)
	}
	patch, err := json.Marshal(map[string]any{"spec": c.spec})
	if err != nil {
		return nil, err
	}
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.Client.Patch(bounded, &pc, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, err
	}
	return &pc, s.say(&pc, c.done)
}

// say tells what has become of a provider, in kubectl's words.
func (s *Session) say(pc *v1alpha1.ProviderCluster, what string) error {
	if err := s.identify(pc); err != nil {
		return err
	}
	return (&printers.NamePrinter{Operation: what}).PrintObj(pc, s.Out)
}

func (s *Session) warnNotYet(pc *v1alpha1.ProviderCluster) {
	if text := notYet(pc); text != "" {
		s.warn(text)
	}
}

// notYet says what still keeps new pods away from a provider that has just been switched on; "" for nothing.
func notYet(pc *v1alpha1.ProviderCluster) string {
	switch {
	case !enabled(pc):
		return pc.Name + " gets no new pods: it is disabled until somebody enables it"
	case pc.Spec.Drain:
		return pc.Name + " gets no new pods: it is drained until somebody uncordons it"
	case pc.Spec.Cordoned:
		return pc.Name + " gets no new pods: it is cordoned until somebody uncordons it"
	}
	return ""
}

// Select has a consumer take providers, or leave them out, from now on. The providers themselves are not changed.
func (s *Session) Select(ctx context.Context, consumer string, providers []string, choose bool) error {
	if err := s.knowConsumer(ctx, consumer); err != nil {
		return err
	}
	done := "disabled"
	if choose {
		done = "enabled"
	}
	var failures []error
	for _, id := range providers {
		if err := s.selectOne(ctx, consumer, id, choose, done); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (s *Session) selectOne(ctx context.Context, consumer, id string, choose bool, done string) error {
	var pc v1alpha1.ProviderCluster
	if err := s.get(ctx, client.ObjectKey{Name: id}, &pc); err != nil {
		return err
	}
	chosen, err := selection.Get(ctx, s.Client, consumer)
	if err != nil {
		return err
	}
	if choose {
		defer s.warnNotYet(&pc)
	}
	if chosen.Has(id) == choose {
		return s.say(&pc, "already "+done+" for "+consumer)
	}
	if err := selection.Set(ctx, s.Client, consumer, id, choose); err != nil {
		return err
	}
	return s.say(&pc, done+" for "+consumer)
}

// knowConsumer refuses names that no peered cluster has: a selection for them would be kept, and never be asked for.
func (s *Session) knowConsumer(ctx context.Context, consumer string) error {
	var cluster liqov1beta1.ForeignCluster
	err := s.get(ctx, client.ObjectKey{Name: consumer}, &cluster)
	if kerrors.IsForbidden(err) {
		return nil // Whoever may not see them is to be right by himself.
	}
	if err != nil {
		return fmt.Errorf("consumer %s: %w", consumer, err)
	}
	return nil
}
