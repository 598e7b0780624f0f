package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

type selectedInput struct {
	ProviderPath
	ConsumerInput
	Body struct {
		Selected bool `json:"selected" doc:"Whether pods of the consumer may be assigned to it"`
	}
}

type enabledInput struct {
	ProviderPath
	Body struct {
		Enabled bool `json:"enabled" doc:"Whether new pods of any consumer may be assigned to it"`
	}
}

func (s *Server) routeWrites(document huma.API) {
	statuses := []int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
	}
	register(s, document, operation("select", http.MethodPut, base+"/providers/{id}/selected",
		"Select or deselect a provider on behalf of a consumer", byKnown, statuses...), s.putSelected)
	register(s, document, operation("enable", http.MethodPut, base+"/providers/{id}/enabled",
		"Enable or disable a provider for all consumers", byKnown, statuses...), s.putEnabled)
}

func (s *Server) putSelected(ctx context.Context, in *selectedInput) (*answer[api.Provider], error) {
	if err := middleware.CallerOf(ctx).NeedKnown(); err != nil {
		return nil, err
	}
	consumer, err := s.acting(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	if consumer == "" {
		return nil, problem.New(http.StatusForbidden,
			"the caller is not a consumer: set the parameter consumer to the id of the consumer to select for")
	}
	provider, ok := s.View.Provider(in.ID, consumer)
	if !ok {
		return nil, noProvider()
	}
	if err := s.selectProvider(ctx, consumer, provider.ID, in.Body.Selected); err != nil {
		return nil, err
	}
	provider.Selected = &in.Body.Selected // The view may not have read it yet.
	return private(provider), nil
}

func (s *Server) putEnabled(ctx context.Context, in *enabledInput) (*answer[api.Provider], error) {
	provider, ok := s.View.Provider(in.ID, "")
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

// mayEnable returns an error unless a caller may enable and disable a provider for all consumers.
func (s *Server) mayEnable(ctx context.Context, provider string, exists bool) error {
	return s.Rights.NeedEither(ctx, middleware.CallerOf(ctx), caller.PatchProvider(""), caller.PatchProvider(provider), exists)
}

func (s *Server) selectProvider(ctx context.Context, consumer, provider string, selected bool) error {
	if err := orchestrator.Set(ctx, s.Live, consumer, provider, selected); err != nil {
		return err
	}
	s.Log.Info("Set a consumer's selection of a provider", "consumer", consumer, "provider", provider, "selected", selected,
		"caller", middleware.CallerOf(ctx).Name())
	return nil
}

// enableProvider changes one field of a ProviderCluster. It writes even if the view has that value already, because the
// view may be older than the object.
func (s *Server) enableProvider(ctx context.Context, provider string, enabled bool) error {
	object := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"enabled":%t}}`, enabled))
	if err := s.Live.Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("ProviderCluster %s: %w", provider, err)
	}
	s.Log.Info("Set the enabled state of a provider", "provider", provider, "enabled", enabled,
		"caller", middleware.CallerOf(ctx).Name())
	return nil
}
