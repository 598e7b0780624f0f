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
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

const (
	// maxParallel is the number of explanations that run in parallel: each may evaluate expressions for every provider.
	maxParallel = 2
	// maxWait is how long an explanation waits until it runs.
	maxWait = 5 * time.Second
	// maxPrograms is the number of bytes of compiled expressions that are cached.
	maxPrograms = 8 << 20
)

var (
	// ErrBusy means that too many explanations were waiting.
	ErrBusy = errors.New("too many explanations at once, try again later")
	// ErrOtherNode means that a pod is not bound to the broker's node.
	ErrOtherNode = errors.New("not a pod of the broker")
)

// Explainer explains pods of a broker's node. It is safe for concurrent use.
type Explainer struct {
	reader client.Reader
	node   string
	// state returns the state for the decision. It is called after all other reads.
	state    func(ctx context.Context) (*state.State, error)
	now      func() time.Time
	policies placement.Policies
	slots    *semaphore.Weighted
	// charge is called with the time that an explanation took, after it has run.
	charge func(took time.Duration)
}

// NewExplainer returns an Explainer that decides by a state, and reads pods, namespaces and policies of the node.
func NewExplainer(reader client.Reader, node string, s *state.State, now func() time.Time) *Explainer {
	return newExplainer(reader, node, func(context.Context) (*state.State, error) { return s, nil }, now)
}

func newExplainer(reader client.Reader, node string, s func(context.Context) (*state.State, error), now func() time.Time) *Explainer {
	return &Explainer{
		reader: reader, node: node, state: s, now: now, slots: semaphore.NewWeighted(maxParallel),
		policies: placement.Policies{Client: reader, Programs: cel.NewCache(maxPrograms)},
		charge:   func(time.Duration) {},
	}
}

// Charging returns the same Explainer, which calls charge with the time that each of its explanations takes, including
// failed ones, without the time that it waits.
func (e *Explainer) Charging(charge func(took time.Duration)) *Explainer {
	charging := *e
	charging.charge = charge
	return &charging
}

// Pod is Explainer.Pod with the present objects of an API server.
func Pod(ctx context.Context, c client.Reader, node string, name types.NamespacedName, now time.Time) (*Explanation, error) {
	read := func(ctx context.Context) (*state.State, error) { return state.Read(ctx, c, node) }
	return newExplainer(c, node, read, func() time.Time { return now }).Pod(ctx, name)
}

// Pod explains a pod of the node, as if its own requests did not count yet. Nothing is changed.
//
// It returns the API's error if there is no such pod, an ErrOtherNode if it is not bound to the node, and an ErrBusy.
func (e *Explainer) Pod(ctx context.Context, name types.NamespacedName) (*Explanation, error) {
	var pod corev1.Pod
	if err := e.reader.Get(ctx, name, &pod); err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != e.node {
		return nil, fmt.Errorf("pod %s is not bound to node %s (--broker-node) but to %q: %w",
			name, e.node, pod.Spec.NodeName, ErrOtherNode)
	}
	namespace, err := e.namespace(ctx, name.Namespace)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Pod: name.String(), AssignedTo: pod.Labels[v1alpha1.ProviderLabel], Providers: []Choice{}}
	done, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	asked, err := e.policies.CriteriaOf(ctx, &pod, namespace)
	return e.explain(ctx, out, &pod, namespace, &asked, err)
}

// begin waits until an explanation may run, which compiles and evaluates expressions until done is called.
func (e *Explainer) begin(ctx context.Context) (done func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if err := e.slots.Acquire(waiting, 1); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	began := time.Now()
	return func() {
		e.slots.Release(1)
		e.charge(time.Since(began))
	}, nil
}

func (e *Explainer) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	if err := e.reader.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		return nil, err
	}
	return &namespace, nil
}

// explain decides about a pod by its criteria, or by the error of reading them.
func (e *Explainer) explain(ctx context.Context, out *Explanation, pod *corev1.Pod, namespace *corev1.Namespace,
	asked *placement.Criteria, err error,
) (*Explanation, error) {
	if errors.Is(err, placement.ErrInvalid) {
		out.Message = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := e.state(ctx)
	if err != nil {
		return nil, err
	}
	now, decided := e.now(), asked.Pod(pod, namespace)
	decision, providers := s.Decide(now, decided, asked.Policy)
	out.fill(now, &decision, decided, providers, asked.Policy)
	why := placement.Condition(pod, v1alpha1.ConditionAssigned)
	if out.AssignedTo == "" && why != nil && v1alpha1.IsOfConsumer(why.Reason) {
		out.Message += "; waiting: " + why.Message
	}
	if tried := backoff.Of(pod).Describe(e.now()); tried != "" {
		out.Message += "; " + tried
	}
	return out, nil
}
