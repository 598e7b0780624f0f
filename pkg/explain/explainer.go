package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// atOnce is how many explanations are worked on in parallel: each may evaluate expressions for every provider.
	atOnce = 2
	// patience is how long one waits for its turn.
	patience = 5 * time.Second
	// programs is how many compiled expressions are kept.
	programs = 200
)

// ErrBusy says that too many explanations are asked for at once.
var ErrBusy = errors.New("too many explanations are asked for at once")

// ErrElsewhere says that a pod is not bound to the broker's node.
var ErrElsewhere = errors.New("not the broker's")

// Explainer explains pods of a broker's node. It is safe for concurrent use.
type Explainer struct {
	reader client.Reader
	node   string
	// beliefs are asked for when all else is known.
	beliefs  func(ctx context.Context) (*Beliefs, error)
	now      func() time.Time
	policies placement.Policies
	slots    *semaphore.Weighted
}

// NewExplainer explains from what is believed, and reads pods, namespaces and policies.
func NewExplainer(reader client.Reader, beliefs *Beliefs, now func() time.Time) *Explainer {
	return newExplainer(reader, beliefs.node, func(context.Context) (*Beliefs, error) { return beliefs, nil }, now)
}

func newExplainer(reader client.Reader, node string, beliefs func(context.Context) (*Beliefs, error), now func() time.Time) *Explainer {
	return &Explainer{
		reader: reader, node: node, beliefs: beliefs, now: now, slots: semaphore.NewWeighted(atOnce),
		policies: placement.Policies{Client: reader, Programs: criteria.NewCache(programs)},
	}
}

// Pod decides about a pod from what the API says: the status of the ProviderClusters, the pods and the policies. The
// broker itself may know of a refusal of the last minutes besides. Nothing is changed.
//
// It returns the API's error if there is no such pod, an ErrElsewhere if it is not bound to the node, and an ErrBusy.
func (e *Explainer) Pod(ctx context.Context, name types.NamespacedName) (*Explanation, error) {
	var pod corev1.Pod
	if err := e.reader.Get(ctx, name, &pod); err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != e.node {
		return nil, fmt.Errorf("pod %s is not bound to node %s (--broker-node) but to %q: %w", name, e.node, pod.Spec.NodeName, ErrElsewhere)
	}
	namespace, err := e.namespace(ctx, name.Namespace)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Pod: name.String(), AssignedTo: pod.Labels[v1alpha1.ProviderLabel], Providers: []Choice{}}
	asked, err := e.policies.CriteriaOf(ctx, &pod, namespace)
	if errors.Is(err, placement.ErrInvalid) {
		out.Message = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	return out, e.inTurn(ctx, func(beliefs *Beliefs) {
		beliefs.decideWithout(name, func(state *scheduler.State) {
			out.decide(state, e.now(), asked.Pod(&pod, namespace), asked.Policy)
		})
	})
}

func (e *Explainer) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	if err := e.reader.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		return nil, err
	}
	return &namespace, nil
}

// inTurn calls f with what is believed when it is its turn.
func (e *Explainer) inTurn(ctx context.Context, f func(*Beliefs)) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := e.slots.Acquire(waiting, 1); err != nil {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	defer e.slots.Release(1)
	beliefs, err := e.beliefs(ctx)
	if err != nil {
		return err
	}
	f(beliefs)
	return nil
}
