package explain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// keptFor is how old what is believed may be: reading it anew takes tens of milliseconds for 10,000 pods.
	keptFor = time.Second
	// atOnce is how many explanations are worked on in parallel: each may evaluate expressions for every provider.
	atOnce = 2
	// patience is how long one waits for its turn.
	patience = 5 * time.Second
	// programs is how many compiled expressions are kept.
	programs = 200
)

// ErrBusy says that too many explanations are asked for at once.
var ErrBusy = errors.New("too many explanations are asked for at once")

// Explainer explains again and again, from a reader that is a cache. It is safe for concurrent use.
type Explainer struct {
	cache    client.Reader
	node     string
	clock    clock.PassiveClock
	policies placement.Policies
	slots    *semaphore.Weighted

	mu    sync.RWMutex
	state *scheduler.State // What is believed; guarded by mu.
	since time.Time        // When state was read; guarded by mu.
}

// NewExplainer explains pods of a broker's node.
func NewExplainer(cache client.Reader, node string, clk clock.PassiveClock) *Explainer {
	return &Explainer{
		cache: cache, node: node, clock: clk, slots: semaphore.NewWeighted(atOnce),
		policies: placement.Policies{Client: cache, Programs: criteria.NewCache(programs)},
	}
}

// Pod is the function Pod, from what was believed at most a second ago. Besides, it returns an ErrBusy, and the API's
// NotFound error also for a pod of another node.
func (e *Explainer) Pod(ctx context.Context, name types.NamespacedName) (*Explanation, error) {
	var pod corev1.Pod
	if err := e.cache.Get(ctx, name, &pod); err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != e.node {
		return nil, kerrors.NewNotFound(corev1.Resource("pods"), name.String())
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
	return out, e.inTurn(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.state.Release(pod.UID)
		out.decide(e.state, e.clock.Now(), asked.Pod(&pod, namespace), asked.Policy)
		assign(e.state, &pod)
	})
}

func (e *Explainer) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	if err := e.cache.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		return nil, err
	}
	return &namespace, nil
}

// inTurn calls f when it is its turn, with what is believed brought up to date.
func (e *Explainer) inTurn(ctx context.Context, f func()) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := e.slots.Acquire(waiting, 1); err != nil {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	defer e.slots.Release(1)
	if err := e.refresh(ctx); err != nil {
		return err
	}
	f()
	return nil
}

func (e *Explainer) refresh(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != nil && e.clock.Since(e.since) < keptFor {
		return nil
	}
	since := e.clock.Now()
	state, err := believed(ctx, e.cache, e.node)
	if err != nil {
		return err
	}
	e.state, e.since = state, since
	return nil
}
