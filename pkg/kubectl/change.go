package kubectl

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
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

// change is a patch of a provider's spec.
type change struct {
	// done is the word for it in the output.
	done string
	// already reports whether the spec has the wanted values.
	already func(*v1alpha1.ProviderCluster) bool
	// spec is the merge patch of the spec.
	spec map[string]any
	// on is set if the provider is meant to get new pods afterwards.
	on bool
}

// Enable sets spec.enabled. Disabled providers get no new pods; their pods stay.
func (s *Session) Enable(ctx context.Context, providers []string, enable bool) error {
	c := change{
		done: "disabled", spec: map[string]any{"enabled": enable}, on: enable,
		already: func(pc *v1alpha1.ProviderCluster) bool { return pc.Spec.IsEnabled() == enable },
	}
	if enable {
		c.done = "enabled"
	}
	return s.changeAll(ctx, providers, c)
}

// Cordon sets spec.cordoned: the providers get no new pods.
func (s *Session) Cordon(ctx context.Context, providers []string) error {
	return s.changeAll(ctx, providers, change{
		done: "cordoned", spec: map[string]any{"cordoned": true},
		already: func(pc *v1alpha1.ProviderCluster) bool { return pc.Spec.Cordoned },
	})
}

// Uncordon removes spec.cordoned and spec.drain.
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

// change patches a provider and returns it as patched.
func (s *Session) change(ctx context.Context, id string, c change) (*v1alpha1.ProviderCluster, error) {
	var pc v1alpha1.ProviderCluster
	if err := s.get(ctx, client.ObjectKey{Name: id}, &pc); err != nil {
		return nil, err
	}
	if c.already(&pc) {
		return &pc, s.printDone(&pc, "already "+c.done)
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
	return &pc, s.printDone(&pc, c.done)
}

// printDone prints a change of a provider, in kubectl's form.
func (s *Session) printDone(pc *v1alpha1.ProviderCluster, what string) error {
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

// notYet returns the reason why a provider gets no new pods after enable or uncordon; "" if it does.
func notYet(pc *v1alpha1.ProviderCluster) string {
	switch {
	case !pc.Spec.IsEnabled():
		return pc.Name + " gets no new pods: it is disabled until 'kubectl broker enable'"
	case pc.Spec.Drain:
		return pc.Name + " gets no new pods: it is drained until 'kubectl broker uncordon'"
	case pc.Spec.Cordoned:
		return pc.Name + " gets no new pods: it is cordoned until 'kubectl broker uncordon'"
	}
	return ""
}

// Select adds providers to the selection of a consumer, or removes them. The providers are not changed.
func (s *Session) Select(ctx context.Context, consumer string, providers []string, choose bool) error {
	if err := s.checkConsumer(ctx, consumer); err != nil {
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
	chosen, err := orchestrator.Get(ctx, s.Client, consumer)
	if err != nil {
		return err
	}
	if choose {
		defer s.warnNotYet(&pc)
	}
	if chosen.Has(id) == choose {
		return s.printDone(&pc, "already "+done+" for "+consumer)
	}
	if err := orchestrator.Set(ctx, s.Client, consumer, id, choose); err != nil {
		return err
	}
	return s.printDone(&pc, done+" for "+consumer)
}

// checkConsumer returns an error for a name that is not the id of a peered cluster: a selection would have no effect,
// and would be shown as a selection of all providers.
func (s *Session) checkConsumer(ctx context.Context, consumer string) error {
	var cluster liqov1beta1.ForeignCluster
	err := s.get(ctx, client.ObjectKey{Name: consumer}, &cluster)
	if kerrors.IsForbidden(err) {
		return nil // The caller may not read ForeignClusters: the name is not checked.
	}
	if err != nil {
		return fmt.Errorf("consumer %s: %w", consumer, err)
	}
	return nil
}
