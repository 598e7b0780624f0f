package catalog

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/selection"
)

type selectedInput struct {
	ProviderPath
	ConsumerInput
	Body struct {
		Selected bool `json:"selected" doc:"Whether the consumer's pods may go there"`
	}
}

type enabledInput struct {
	ProviderPath
	Body struct {
		Enabled bool `json:"enabled" doc:"Whether the provider takes part, for everybody"`
	}
}

func (s *server) routeWrites(document huma.API) {
	statuses := []int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
	}
	register(s, document, operation("select", http.MethodPut, base+"/providers/{id}/selected",
		"Select a provider on behalf of a consumer, or no longer", byKnown, statuses...), s.putSelected)
	register(s, document, operation("enable", http.MethodPut, base+"/providers/{id}/enabled",
		"Enable or disable a provider for everybody", byKnown, statuses...), s.putEnabled)
}

func (s *server) putSelected(ctx context.Context, in *selectedInput) (*answer[api.Provider], error) {
	if err := callerOf(ctx).NeedKnown(); err != nil {
		return nil, err
	}
	consumer, err := s.acting(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	if consumer == "" {
		return nil, newProblem(http.StatusForbidden,
			"you are no consumer: say by the parameter consumer on whose behalf you select")
	}
	provider, ok := s.view.Provider(in.ID, consumer)
	if !ok {
		return nil, noProvider()
	}
	if err := s.selectProvider(ctx, consumer, provider.ID, in.Body.Selected); err != nil {
		return nil, err
	}
	provider.Selected = &in.Body.Selected // The view may not have seen it yet.
	return private(provider), nil
}

func (s *server) putEnabled(ctx context.Context, in *enabledInput) (*answer[api.Provider], error) {
	provider, ok := s.view.Provider(in.ID, "")
	if err := s.mayEnable(ctx, in.ID, ok); err != nil {
		return nil, err
	}
	if !ok {
		return nil, noProvider()
	}
	if err := s.enableProvider(ctx, provider.ID, in.Body.Enabled); err != nil {
		return nil, err
	}
	provider.Enabled = in.Body.Enabled
	return private(provider), nil
}

// mayEnable says whether a caller may enable and disable a provider for everybody, whether or not it exists.
func (s *server) mayEnable(ctx context.Context, provider string, exists bool) error {
	return s.rights.NeedEither(ctx, callerOf(ctx), caller.PatchProvider(""), caller.PatchProvider(provider), exists)
}

// selectProvider changes what a consumer selected.
func (s *server) selectProvider(ctx context.Context, consumer, provider string, selected bool) error {
	if err := selection.Set(ctx, s.live, consumer, provider, selected); err != nil {
		return err
	}
	s.log.Info("A consumer's selection was written", "consumer", consumer, "provider", provider, "selected", selected,
		"caller", callerOf(ctx).Name())
	return nil
}

// enableProvider changes one field, whatever others write to the object at the same time. It writes without asking first
// whether that changes anything: what the view knows may be old, and to the API server it is no change then.
func (s *server) enableProvider(ctx context.Context, provider string, enabled bool) error {
	object := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"enabled":%t}}`, enabled))
	if err := s.live.Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("ProviderCluster %s: %w", provider, err)
	}
	s.log.Info("A provider was enabled or disabled", "provider", provider, "enabled", enabled,
		"caller", callerOf(ctx).Name())
	return nil
}
