package catalog

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

type explainInput struct {
	ConsumerInput
	Namespace string `query:"namespace" required:"true" minLength:"1" maxLength:"63" doc:"Of the pod"`
	Pod       string `query:"pod" required:"true" minLength:"1" maxLength:"253" doc:"Its name"`
}

type supposeInput struct {
	ConsumerInput
	Body hypothesis
}

// hypothesis is a pod that does not exist.
type hypothesis struct {
	Namespace   string            `json:"namespace" minLength:"1" maxLength:"63" doc:"A namespace that exists"`
	Labels      map[string]string `json:"labels,omitempty" doc:"Of the pod"`
	Annotations map[string]string `json:"annotations,omitempty" doc:"Of the pod, such as brokering.liqo.io/filter"`
	// Requests are quantities, which are told from one another by their names.
	Requests map[string]string             `json:"requests,omitempty" maxProperties:"32" doc:"Quantities, by resource"`
	Policy   *v1alpha1.PlacementPolicySpec `json:"policy,omitempty" doc:"Counts for the pod, whatever it selects"`
}

func (s *server) routeExplanations(document huma.API) {
	register(s, document, operation("explain", http.MethodGet, base+"/explain",
		"What the broker thinks of every provider for a pod", byKnown,
		http.StatusForbidden, http.StatusNotFound), s.explanation)
	register(s, document, operation("suppose", http.MethodPost, base+"/explain",
		"What the broker would think of every provider for a pod that does not exist, under a policy that need not exist",
		byKnown, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType), s.supposition)
}

func (s *server) explanation(ctx context.Context, in *explainInput) (*answer[*explain.Explanation], error) {
	if err := s.mayExplain(ctx, in.Consumer, in.Namespace); err != nil {
		return nil, err
	}
	explanation, err := s.explain.Pod(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod})
	if err != nil {
		return nil, err
	}
	return private(explanation), nil
}

func (s *server) supposition(ctx context.Context, in *supposeInput) (*answer[*explain.Explanation], error) {
	if err := s.mayExplain(ctx, in.Consumer, in.Body.Namespace); err != nil {
		return nil, err
	}
	requests, err := quantities(in.Body.Requests)
	if err != nil {
		return nil, err
	}
	explanation, err := s.explain.Suppose(ctx, &explain.Hypothesis{
		Namespace: in.Body.Namespace, Labels: in.Body.Labels, Annotations: in.Body.Annotations,
		Requests: requests, Policy: in.Body.Policy,
	})
	if err != nil {
		return nil, err
	}
	return private(explanation), nil
}

// mayExplain says whether a caller may have the pods of a namespace explained: a consumer those that came from it, others
// those that they may get. It counts the explanation, which is work, before anything else.
func (s *server) mayExplain(ctx context.Context, named, namespace string) error {
	who := callerOf(ctx)
	if err := who.NeedKnown(); err != nil {
		return err
	}
	// The request itself has been counted.
	if wait := s.allowances.Take(caller.Key(who, ""), explainWorth-1); wait > 0 {
		return &caller.LimitError{RetryAfter: wait}
	}
	consumer, err := s.acting(ctx, named)
	switch {
	case err != nil:
		return err
	case consumer == "":
		return s.mayGetPods(ctx, namespace)
	case s.view.ConsumerOfNamespace(namespace) != consumer:
		return newProblem(http.StatusNotFound, "consumer "+consumer+" has no such namespace here")
	}
	return nil
}

func (s *server) mayGetPods(ctx context.Context, namespace string) error {
	who, exists := callerOf(ctx), s.view.HasNamespace(namespace)
	err := s.rights.NeedEither(ctx, who, caller.GetPods(""), caller.GetPods(namespace), exists)
	if err != nil {
		return err
	}
	return s.rights.Need(ctx, who, caller.ListProviders())
}

func quantities(texts map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	p := newProblem(http.StatusUnprocessableEntity, "the requests are not valid")
	for name, text := range texts {
		quantity, err := criteria.ParseQuantity(text)
		switch {
		case len(validation.IsQualifiedName(name)) > 0:
			p.Errors = append(p.Errors, fault("body.requests."+name, "this is no name of a resource"))
		case err != nil:
			p.Errors = append(p.Errors, fault("body.requests."+name, err.Error()))
		case quantity.Sign() < 0:
			p.Errors = append(p.Errors, fault("body.requests."+name, "it must not be negative"))
		}
		list[corev1.ResourceName(name)] = quantity
	}
	if len(p.Errors) > 0 {
		return nil, p
	}
	return list, nil
}
