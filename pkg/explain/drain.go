package explain

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Outcome is how a drain of its provider ends for a pod.
type Outcome string

// The outcomes of a drain. A pod that Waits leaves its provider although no other fits, one that Stays keeps running
// there, because its volumes are there.
const (
	Moves Outcome = "Moves"
	Waits Outcome = "Waits"
	Stays Outcome = "Stays"
)

// Departure is a pod whose provider would be drained.
type Departure struct {
	// Pod is namespace/name. From is the provider that it would leave, To the one that it would be assigned to; "" if
	// there is none.
	Pod     string  `json:"pod"`
	Outcome Outcome `json:"outcome"`
	From    string  `json:"from"`
	To      string  `json:"to,omitempty"`
	// Message is the decision, or why no other provider fits.
	Message string `json:"message"`
}

// Drain returns where the pods of providers would go if these were drained now, one pod after the other by name, with
// the present objects of an API server. Nothing is changed. The error is the API's.
func Drain(ctx context.Context, c client.Reader, node string, providers []string, now time.Time) ([]Departure, error) {
	s, err := state.Read(ctx, c, node)
	if err != nil {
		return nil, err
	}
	for _, id := range providers {
		var pc v1alpha1.ProviderCluster
		if err := c.Get(ctx, client.ObjectKey{Name: id}, &pc); err != nil {
			return nil, err
		}
		pc.Spec.Drain = true
		s.SetProvider(&pc)
	}
	e := NewExplainer(&memo{Reader: c, namespaces: map[string]*corev1.Namespace{}}, node, s, func() time.Time { return now })
	// As for the broker: volumes that other pods use are kept.
	e.policies.Nowhere = func(_ context.Context, pod *corev1.Pod, claim *placement.Claim, _ *placement.Rules) (bool, error) {
		return slices.Contains(providers, claim.Provider()) && !s.SharesClaim(pod, claim.Name), nil
	}
	departures := []Departure{}
	for _, pod := range s.PodsAt(providers) {
		d, err := e.depart(ctx, s, pod)
		if err != nil {
			return nil, err
		}
		departures = append(departures, *d)
	}
	return departures, nil
}

// depart decides about a pod of a provider that is drained, and counts it where it would go.
func (e *Explainer) depart(ctx context.Context, s *state.State, pod *corev1.Pod) (*Departure, error) {
	d := &Departure{Pod: client.ObjectKeyFromObject(pod).String(), From: pod.Labels[v1alpha1.ProviderLabel], Outcome: Waits}
	if len(placement.ClaimsOf(pod)) > 0 {
		d.Outcome = Stays
	}
	namespace, err := e.namespace(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	criteria, err := e.policies.CriteriaOf(ctx, pod, namespace)
	if errors.Is(err, placement.ErrInvalid) {
		d.Message = err.Error()
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	decision, _ := s.Decide(e.now(), criteria.Pod(pod, namespace), criteria.Policy)
	if decision.VirtualNode == "" {
		d.Message = decision.Unschedulable()
		return d, nil
	}
	d.Outcome, d.To, d.Message = Moves, decision.Provider, decision.Prospect()
	moved := pod.DeepCopy()
	moved.Labels[v1alpha1.ProviderLabel], moved.Labels[v1alpha1.VirtualNodeLabel] = decision.Provider, decision.VirtualNode
	s.SetPod(moved)
	return d, nil
}

// memo reads each namespace, and the list of policies, once: many pods have the same.
type memo struct {
	client.Reader
	namespaces map[string]*corev1.Namespace
	policies   *v1alpha1.PlacementPolicyList
}

// Get implements client.Reader.
func (m *memo) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	namespace, is := into.(*corev1.Namespace)
	if !is {
		return m.Reader.Get(ctx, key, into, opts...)
	}
	if m.namespaces[key.Name] == nil {
		var read corev1.Namespace
		if err := m.Reader.Get(ctx, key, &read, opts...); err != nil {
			return err
		}
		m.namespaces[key.Name] = &read
	}
	m.namespaces[key.Name].DeepCopyInto(namespace)
	return nil
}

// List implements client.Reader.
func (m *memo) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	policies, is := into.(*v1alpha1.PlacementPolicyList)
	if !is {
		return m.Reader.List(ctx, into, opts...)
	}
	if m.policies == nil {
		var read v1alpha1.PlacementPolicyList
		if err := m.Reader.List(ctx, &read, opts...); err != nil {
			return err
		}
		m.policies = &read
	}
	m.policies.DeepCopyInto(policies)
	return nil
}
