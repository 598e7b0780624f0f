package catalog

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
)

type placementsInput struct {
	PageInput
	ConsumerInput
	Namespace string `query:"namespace" maxLength:"63" doc:"Only pods in it"`
	Provider  string `query:"provider" maxLength:"63" doc:"Only pods that are there"`
	Phase     string `query:"phase" enum:"Pending,Running,Succeeded,Failed,Unknown" doc:"Only pods in it"`
	Text      string `query:"q" maxLength:"256" doc:"Part of namespace/pod, or of the id of the provider or the consumer"`
	Waiting   bool   `query:"waiting" doc:"Only pods that wait for a provider"`
}

type flowsInput struct{ ConsumerInput }

type policiesInput struct {
	PageInput
	ConsumerInput
}

func (s *server) routePlacements(document huma.API) {
	register(s, document, operation("listPlacements", http.MethodGet, base+"/placements",
		"Where pods are, by namespace and name: a consumer's own, or all for who may list pods", byKnown,
		http.StatusForbidden), s.placements)
	register(s, document, operation("listFlows", http.MethodGet, base+"/flows",
		"How many pods go from which consumer to which provider", byKnown, http.StatusForbidden), s.flows)
	register(s, document, operation("listPolicies", http.MethodGet, base+"/policies",
		"The policies, by name: those for a consumer, or all for who may list them", byKnown,
		http.StatusForbidden), s.policies)
}

func (s *server) placements(ctx context.Context, in *placementsInput) (*answer[api.PlacementList], error) {
	scope, err := s.scopeOfPods(ctx, in.Consumer, in.Namespace)
	if err != nil {
		return nil, err
	}
	list, err := s.view.Placements(federation.PlacementQuery{
		Page: federation.Page{Limit: in.Limit, Continue: in.Continue}, Scope: scope,
		Namespace: in.Namespace, Provider: in.Provider, Consumer: in.Consumer,
		Phase: in.Phase, Text: in.Text, Waiting: in.Waiting,
	})
	if err != nil {
		return nil, err
	}
	list.Items = notNull(list.Items)
	return private(list), nil
}

func (s *server) flows(ctx context.Context, in *flowsInput) (*answer[api.FlowList], error) {
	scope, err := s.scope(ctx, in.Consumer, caller.ListPods(""))
	if err != nil {
		return nil, err
	}
	list := s.view.Flows(scope)
	list.Items = notNull(list.Items)
	return private(list), nil
}

func (s *server) policies(ctx context.Context, in *policiesInput) (*answer[api.PolicyList], error) {
	scope, err := s.scope(ctx, in.Consumer, caller.ListPolicies())
	if err != nil {
		return nil, err
	}
	list, err := s.view.Policies(scope, federation.Page{Limit: in.Limit, Continue: in.Continue})
	if err != nil {
		return nil, err
	}
	list.Items = notNull(list.Items)
	return private(list), nil
}
