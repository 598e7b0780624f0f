package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
)

type providersInput struct {
	PageInput
	ConsumerInput
	Text    string `query:"q" maxLength:"256" doc:"Only providers with this text in the id, the region or an attribute"`
	Ready   string `query:"ready" enum:"true,false" doc:"Only providers that are ready (true) or not ready (false)"`
	Enabled string `query:"enabled" enum:"true,false" doc:"Only providers that are enabled (true) or disabled (false)"`
	Region  string `query:"region" maxLength:"256" doc:"Only providers in this region"`
}

type providerInput struct {
	ProviderPath
	ConsumerInput
}

func (s *Server) routeProviders(document huma.API) {
	register(s, document, operation("getMe", http.MethodGet, base+"/me", "The caller and its rights",
		byAnybody, http.StatusForbidden), s.me)
	register(s, document, operation("listProviders", http.MethodGet, base+"/providers", "The providers, by id",
		byAnybody, http.StatusForbidden), s.providers)
	register(s, document, operation("getProvider", http.MethodGet, base+"/providers/{id}", "One provider",
		byAnybody, http.StatusForbidden, http.StatusNotFound), s.provider)
	register(s, document, operation("getHistory", http.MethodGet, base+"/providers/{id}/history", "The history of a provider",
		byAnybody, http.StatusForbidden, http.StatusNotFound), s.history)
}

func (s *Server) me(ctx context.Context, in *ConsumerInput) (*answer[api.Me], error) {
	who := middleware.CallerOf(ctx)
	consumer, err := s.acting(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	me := api.Me{User: who.Name(), Consumer: consumer, Services: api.Served{Version: s.Version, Node: s.Node}}
	for _, can := range []struct {
		allowed *bool
		rights  []caller.Right
	}{
		{&me.Can.Placements, []caller.Right{caller.ListPods("")}},
		{&me.Can.Policies, []caller.Right{caller.ListPolicies()}},
		{&me.Can.Explain, []caller.Right{caller.GetPods(""), caller.ListProviders()}},
		{&me.Can.Enable, []caller.Right{caller.PatchProvider("")}},
	} {
		if *can.allowed, err = s.Rights.Has(ctx, who, can.rights...); err != nil {
			return nil, err
		}
	}
	if consumer != "" {
		me.Can.Placements, me.Can.Policies, me.Can.Explain, me.Can.Select = true, true, true, true
	}
	return private(me), nil
}

func (s *Server) providers(ctx context.Context, in *providersInput) (*answer[api.ProviderList], error) {
	consumer, details, err := s.seesProviders(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	list, err := s.View.Providers(view.ProviderQuery{
		Page: view.Page{Limit: in.Limit, Continue: in.Continue}, Text: in.Text, Region: in.Region,
		Ready: yesOrNo(in.Ready), Enabled: yesOrNo(in.Enabled), Consumer: consumer, Public: !details,
	})
	if err != nil {
		return nil, err
	}
	if !details {
		for i := range list.Items {
			list.Items[i] = list.Items[i].Public()
		}
	}
	return shared(ctx, list), nil
}

func (s *Server) provider(ctx context.Context, in *providerInput) (*answer[api.Provider], error) {
	consumer, details, err := s.seesProviders(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	provider, ok := s.View.Provider(in.ID, consumer)
	if !ok {
		return nil, noProvider()
	}
	if !details {
		provider = provider.Public()
	}
	return shared(ctx, provider), nil
}

func (s *Server) history(ctx context.Context, in *providerInput) (*answer[api.History], error) {
	if _, _, err := s.seesProviders(ctx, in.Consumer); err != nil {
		return nil, err
	}
	history, ok := s.View.History(in.ID)
	if !ok {
		return nil, noProvider()
	}
	return shared(ctx, history), nil
}

func noProvider() error { return problem.New(http.StatusNotFound, "provider cluster not found") }

// yesOrNo returns nil for a parameter that is absent.
func yesOrNo(text string) *bool {
	if text == "" {
		return nil
	}
	yes := text == "true"
	return &yes
}
