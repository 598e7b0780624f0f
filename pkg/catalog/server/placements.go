package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
)

type placementsInput struct {
	PageInput
	ConsumerInput
	Namespace string `query:"namespace" maxLength:"63" doc:"Only pods in this namespace"`
	Provider  string `query:"provider" maxLength:"63" doc:"Only pods that are assigned to this provider"`
	Phase     string `query:"phase" enum:"Pending,Running,Succeeded,Failed,Unknown" doc:"Only pods in this phase"`
	Text      string `query:"q" maxLength:"256" doc:"Only pods with this text in namespace/pod, or in the id of the provider or the consumer"`
	Waiting   bool   `query:"waiting" doc:"Only pods that wait for a provider"`
}

type policiesInput struct {
	PageInput
	ConsumerInput
}

func (s *Server) routePlacements(document huma.API) {
	register(s, document, operation("listPlacements", http.MethodGet, base+"/placements",
		"The placements of pods, by namespace and name: the consumer's, or all if the caller may list pods", byKnown,
		http.StatusForbidden), s.placements)
	register(s, document, operation("listFlows", http.MethodGet, base+"/flows",
		"How many pods go from which consumer to which provider", byKnown, http.StatusForbidden), s.flows)
	register(s, document, operation("listPolicies", http.MethodGet, base+"/policies",
		"The policies, by name: the consumer's, or all if the caller may list them", byKnown,
		http.StatusForbidden), s.policies)
}

func (s *Server) placements(ctx context.Context, in *placementsInput) (*answer[api.PlacementList], error) {
	scope, err := s.scopeOfPods(ctx, in.Consumer, in.Namespace)
	if err != nil {
		return nil, err
	}
	return privately(s.View.Placements(view.PlacementQuery{
		Page: view.Page{Limit: in.Limit, Continue: in.Continue}, Scope: scope,
		Namespace: in.Namespace, Provider: in.Provider, Consumer: in.Consumer,
		Phase: in.Phase, Text: in.Text, Waiting: in.Waiting,
	}))
}

func (s *Server) flows(ctx context.Context, in *ConsumerInput) (*answer[api.FlowList], error) {
	scope, err := s.scope(ctx, in.Consumer, caller.ListPods(""))
	if err != nil {
		return nil, err
	}
	return private(s.View.Flows(scope)), nil
}

func (s *Server) policies(ctx context.Context, in *policiesInput) (*answer[api.PolicyList], error) {
	scope, err := s.scope(ctx, in.Consumer, caller.ListPolicies())
	if err != nil {
		return nil, err
	}
	return privately(s.View.Policies(scope, view.Page{Limit: in.Limit, Continue: in.Continue}))
}
