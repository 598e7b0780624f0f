package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources/quantity"
)

// explanationCost is the number of requests that an explanation counts for at least: it may evaluate expressions for
// every provider.
const explanationCost = 5

type explainInput struct {
	ConsumerInput
	Namespace string `query:"namespace" required:"true" minLength:"1" maxLength:"63" doc:"The namespace of the pod"`
	Pod       string `query:"pod" required:"true" minLength:"1" maxLength:"253" doc:"The name of the pod"`
}

type supposeInput struct {
	ConsumerInput
	Body hypothesis
}

// hypothesis is a pod that does not exist.
type hypothesis struct {
	Namespace   string            `json:"namespace" minLength:"1" maxLength:"63" doc:"An existing namespace"`
	Labels      map[string]string `json:"labels,omitempty" doc:"Labels of the pod"`
	Annotations map[string]string `json:"annotations,omitempty" doc:"Annotations of the pod, such as brokering.liqo.io/filter"`
	// Requests are strings, so that each fault is reported with the name of its resource.
	Requests map[string]string             `json:"requests,omitempty" maxProperties:"32" doc:"Quantities, by resource"`
	Policy   *v1alpha1.PlacementPolicySpec `json:"policy,omitempty" doc:"The policy to use for the pod, regardless of its selectors; absent for the policy that matches the pod"`
}

func (s *Server) routeExplanations(document huma.API) {
	register(s, document, operation("explain", http.MethodGet, base+"/explain",
		"The verdict on every provider for a pod", byKnown,
		http.StatusForbidden, http.StatusNotFound), s.explanation)
	register(s, document, operation("suppose", http.MethodPost, base+"/explain",
		"The verdict on every provider for a pod that does not exist, under a policy that may not exist either",
		byKnown, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType), s.supposition)
}

func (s *Server) explanation(ctx context.Context, in *explainInput) (*answer[*explain.Explanation], error) {
	explainer, done, err := s.explainer(ctx, in.Consumer, in.Namespace)
	if err != nil {
		return nil, err
	}
	defer done()
	return privately(explainer.Pod(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}))
}

func (s *Server) supposition(ctx context.Context, in *supposeInput) (*answer[*explain.Explanation], error) {
	explainer, done, err := s.explainer(ctx, in.Consumer, in.Body.Namespace)
	if err != nil {
		return nil, err
	}
	defer done()
	requests, err := quantities(in.Body.Requests)
	if err != nil {
		return nil, err
	}
	return privately(explainer.Suppose(ctx, &explain.Hypothesis{
		Namespace: in.Body.Namespace, Labels: in.Body.Labels, Annotations: in.Body.Annotations,
		Requests: requests, Policy: in.Body.Policy,
	}))
}

// explainer returns an Explainer for a caller and the pods of a namespace, until done is called: a caller may have few
// explanations at once, and the time that each takes counts as requests.
func (s *Server) explainer(ctx context.Context, named, namespace string) (explainer *explain.Explainer, done func(), err error) {
	if err := s.mayExplain(ctx, named, namespace); err != nil {
		return nil, nil, err
	}
	key := s.Allowances.Key(middleware.CallerOf(ctx), "")
	done, ok := s.Allowances.Explain(key)
	if !ok {
		return nil, nil, explain.ErrBusy
	}
	return s.Explain.Charging(func(took time.Duration) { s.Allowances.Charge(key, took) }), done, nil
}

// mayExplain returns an error unless a caller may explain the pods of a namespace: a consumer its own pods, other
// callers the pods that they may get. It first charges the explanation to the caller's allowance.
func (s *Server) mayExplain(ctx context.Context, named, namespace string) error {
	who := middleware.CallerOf(ctx)
	if err := who.NeedKnown(); err != nil {
		return err
	}
	// The request itself was counted before.
	if wait := s.Allowances.Take(s.Allowances.Key(who, ""), explanationCost-1); wait > 0 {
		return &caller.LimitError{RetryAfter: wait}
	}
	consumer, err := s.acting(ctx, named)
	switch {
	case err != nil:
		return err
	case consumer == "":
		return s.mayGetPods(ctx, namespace)
	case s.View.ConsumerOfNamespace(namespace) != consumer:
		return problem.New(http.StatusNotFound, "namespace not found for consumer "+consumer)
	}
	return nil
}

func (s *Server) mayGetPods(ctx context.Context, namespace string) error {
	who, exists := middleware.CallerOf(ctx), s.View.HasNamespace(namespace)
	err := s.Rights.NeedEither(ctx, who, caller.GetPods(""), caller.GetPods(namespace), exists)
	if err != nil {
		return err
	}
	return s.Rights.Need(ctx, who, caller.ListProviders())
}

func quantities(texts map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	p := problem.New(http.StatusUnprocessableEntity, "the requests are not valid")
	for name, text := range texts {
		amount, err := quantity.Parse(text)
		switch {
		case len(validation.IsQualifiedName(name)) > 0:
			p.Errors = append(p.Errors, problem.Fault("body.requests."+name, "must be the name of a resource"))
		case err != nil:
			p.Errors = append(p.Errors, problem.Fault("body.requests."+name, err.Error()))
		case amount.Sign() < 0:
			p.Errors = append(p.Errors, problem.Fault("body.requests."+name, "must not be negative"))
		}
		list[corev1.ResourceName(name)] = amount
	}
	if len(p.Errors) > 0 {
		return nil, p
	}
	return list, nil
}
