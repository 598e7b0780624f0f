package catalog

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
)

type meInput struct{ ConsumerInput }

type providersInput struct {
	PageInput
	ConsumerInput
	Text    string `query:"q" maxLength:"256" doc:"Part of the id, the region or an attribute"`
	Ready   string `query:"ready" enum:"true,false" doc:"Only those that can be given pods, or cannot"`
	Enabled string `query:"enabled" enum:"true,false" doc:"Only those that take part, or do not"`
	Region  string `query:"region" maxLength:"256" doc:"Only those there"`
}

type providerInput struct {
	ProviderPath
	ConsumerInput
}

func (s *server) routeProviders(document huma.API) {
	register(s, document, operation("getMe", http.MethodGet, base+"/me", "Who asks, and what the caller may do",
		byAnybody, http.StatusForbidden), s.me)
	register(s, document, operation("listProviders", http.MethodGet, base+"/providers", "The providers, by id",
		byAnybody, http.StatusForbidden), s.providers)
	register(s, document, operation("getProvider", http.MethodGet, base+"/providers/{id}", "One provider",
		byAnybody, http.StatusForbidden, http.StatusNotFound), s.provider)
	register(s, document, operation("getHistory", http.MethodGet, base+"/providers/{id}/history", "How a provider did",
		byAnybody, http.StatusForbidden, http.StatusNotFound), s.history)
}

func (s *server) me(ctx context.Context, in *meInput) (*answer[api.Me], error) {
	who := callerOf(ctx)
	consumer, err := s.acting(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	me := api.Me{User: who.Name(), Consumer: consumer, Services: api.Served{Version: s.version, Node: s.node}}
	for _, can := range []struct {
		allowed *bool
		rights  []caller.Right
	}{
		{&me.Can.Placements, []caller.Right{caller.ListPods("")}},
		{&me.Can.Policies, []caller.Right{caller.ListPolicies()}},
		{&me.Can.Explain, []caller.Right{caller.GetPods(""), caller.ListProviders()}},
		{&me.Can.Enable, []caller.Right{caller.PatchProvider("")}},
	} {
		if *can.allowed, err = s.rights.Has(ctx, who, can.rights...); err != nil {
			return nil, err
		}
	}
	if consumer != "" {
		me.Can.Placements, me.Can.Policies, me.Can.Explain, me.Can.Select = true, true, true, true
	}
	return private(me), nil
}

func (s *server) providers(ctx context.Context, in *providersInput) (*answer[api.ProviderList], error) {
	consumer, err := s.seesProviders(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	list, err := s.view.Providers(federation.ProviderQuery{
		Page: federation.Page{Limit: in.Limit, Continue: in.Continue}, Text: in.Text, Region: in.Region,
		Ready: yesOrNo(in.Ready), Enabled: yesOrNo(in.Enabled), Consumer: consumer,
	})
	if err != nil {
		return nil, err
	}
	list.Items = notNull(list.Items)
	return shared(ctx, list), nil
}

func (s *server) provider(ctx context.Context, in *providerInput) (*answer[api.Provider], error) {
	consumer, err := s.seesProviders(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	provider, ok := s.view.Provider(in.ID, consumer)
	if !ok {
		return nil, noProvider()
	}
	return shared(ctx, provider), nil
}

func (s *server) history(ctx context.Context, in *providerInput) (*answer[api.History], error) {
	if _, err := s.seesProviders(ctx, in.Consumer); err != nil {
		return nil, err
	}
	history, ok := s.view.History(in.ID)
	if !ok {
		return nil, noProvider()
	}
	history.Samples, history.Gaps = notNull(history.Samples), notNull(history.Gaps)
	return shared(ctx, history), nil
}

func noProvider() error { return newProblem(http.StatusNotFound, "there is no such provider") }

// yesOrNo is nil for what was not asked.
func yesOrNo(text string) *bool {
	if text == "" {
		return nil
	}
	yes := text == "true"
	return &yes
}

// notNull is a list that is not null in JSON.
func notNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
