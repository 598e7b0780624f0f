// Package accounting writes the ledger: which pods hold resources at which provider, and the providers' prices.
package accounting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

const (
	// writeTimeout is the deadline of a write to the ledger.
	writeTimeout = 10 * time.Second
	// retryInterval is how often a ledger is tried that cannot be opened.
	retryInterval = 10 * time.Second
	// forgetInterval is how often segments are deleted that are older than the retention.
	forgetInterval = time.Hour
)

// Config is everything that an Accountant needs.
type Config struct {
	Log   logr.Logger
	Clock clock.WithTicker
	// Pods has the pods of the broker's Node; Client reads their namespaces, and the ConsumerClusters.
	Pods   cache.Informers
	Client client.Reader
	// Prices returns the present prices of all providers.
	Prices func() map[string]price.Lists
	// Events are about ConsumerClusters.
	Events  record.EventRecorder
	Metrics *Metrics
	Settings
}

// Settings are made by an administrator.
type Settings struct {
	// File is the ledger. Interval is how often it is written, Retention how long ended segments are kept; 0: indefinitely.
	File                string
	Interval, Retention time.Duration
}

// Accountant writes the ledger while the broker leads.
type Accountant struct {
	Config

	// store is open while record runs.
	store *ledger.Store
	mu    sync.Mutex
	book  *ledger.Book
	// seen is when the pods of the initial list were seen last: by the broker that led before.
	seen time.Time
	// holding has the pods that hold resources while the initial list is observed; then it is nil.
	holding map[types.UID]bool
	// usage counts for the metrics. Only Run uses it.
	usage *usage
	// again has the pods whose namespace could not be read.
	again map[types.UID]*corev1.Pod
	// overBudget has the consumers whose new pods wait in a month, each with the reason; nil before the first comparison.
	// Run began at began. Only Run reads and writes warned, which has the budgets that an event was about.
	overBudget map[string]string
	month      time.Time
	began      time.Time
	warned     map[string]stage
}

// New returns an Accountant, which does nothing before Run.
func New(cfg Config) *Accountant { return &Accountant{Config: cfg, warned: map[string]stage{}} }

// Run writes the ledger until ctx ends, and then once more. It fails if another broker writes it: this one leads no more.
// Otherwise it tries again: pods are assigned whether or not the ledger can be written.
func (a *Accountant) Run(ctx context.Context) error {
	a.Metrics.written(a.Clock.Now(), 0) // An alert counts from now.
	a.mu.Lock()
	a.began = a.Clock.Now()
	a.mu.Unlock()
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		err := a.record(ctx)
		if ctx.Err() != nil || errors.Is(err, ledger.ErrFenced) {
			return true, err
		}
		a.Log.Error(err, "Failed to open the ledger, retrying", "file", a.File)
		return false, nil
	})
	if errors.Is(err, ledger.ErrFenced) || err == nil {
		return err
	}
	if !errors.Is(err, context.Canceled) {
		a.Log.Error(err, "Failed to write the ledger at the end", "file", a.File)
	}
	return nil
}

func (a *Accountant) record(ctx context.Context) error {
	store, err := ledger.Open(ctx, a.File)
	if err != nil {
		return err
	}
	a.store = store
	return errors.Join(a.run(ctx), store.Close())
}

func (a *Accountant) run(ctx context.Context) error {
	open, alive, err := a.store.Lead(ctx)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	prices, err := a.store.Prices(ctx)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	known := &knownPrices{latest: prices.Latest(), inHour: map[string]int{}}
	now := a.Clock.Now()
	if alive.IsZero() || alive.After(now) {
		alive = now
	}
	a.book, a.seen, a.holding = ledger.NewBook(open), alive, map[types.UID]bool{}
	a.again = map[types.UID]*corev1.Pod{}
	a.usage = newUsage(a.Metrics, alive)
	a.Log.Info("Writing the ledger", "file", a.File, "openSegments", len(open), "writtenUntil", alive)

	informer, err := a.Pods.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	registered, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) { a.observe(ctx, o, initial, false) },
		UpdateFunc: func(old, o any) {
			if before, ok := old.(*corev1.Pod); ok && before.UID != uidOf(o) { // A list did not show the deletion.
				a.release(old)
			}
			a.observe(ctx, o, false, false)
		},
		DeleteFunc: a.release,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := informer.RemoveEventHandler(registered); err != nil {
			a.Log.Error(err, "Failed to remove the event handler of the ledger")
		}
	}()
	if !toolscache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return nil // It ends before it has observed all pods.
	}
	a.mu.Lock()
	a.book.ReleaseOthers(a.seen, a.holding)
	a.holding = nil // The initial pods are known.
	a.mu.Unlock()
	return a.writeUntilEnd(ctx, known)
}

func (a *Accountant) writeUntilEnd(ctx context.Context, prices *knownPrices) error {
	ticker := a.Clock.NewTicker(a.Interval)
	defer ticker.Stop()
	var forgotten, compared time.Time
	for {
		err := a.write(ctx, prices)
		if errors.Is(err, ledger.ErrFenced) {
			return fmt.Errorf("ledger %s: %w", a.File, err)
		}
		if err != nil && ctx.Err() == nil { // The changes stay in memory.
			a.Log.Error(err, "Failed to write the ledger, retrying", "file", a.File)
		}
		if now := a.Clock.Now(); now.Sub(compared) >= budgetInterval {
			compared = now
			if err := a.checkBudgets(ctx); err != nil && ctx.Err() == nil {
				a.Log.Error(err, "Failed to compare costs with budgets, retrying")
			}
		}
		if now := a.Clock.Now(); a.Retention > 0 && now.Sub(forgotten) >= forgetInterval {
			forgotten = now
			before := now.Add(-a.Retention)
			if month := ledger.MonthOf(now); month.Before(before) { // Budgets need all of it.
				before = month
			}
			if err := a.store.Forget(ctx, before); err != nil {
				a.Log.Error(err, "Failed to delete old segments of the ledger", "file", a.File)
			}
		}
		select {
		case <-ctx.Done():
			err := a.write(context.WithoutCancel(ctx), prices)
			if errors.Is(err, ledger.ErrFenced) {
				return nil // The next leader was quicker.
			}
			return err
		case <-ticker.C():
		}
	}
}

// write writes the changes until now. Pods hold their resources for as long as they are seen.
func (a *Accountant) write(ctx context.Context, prices *knownPrices) error {
	a.observeAgain(ctx)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	a.mu.Lock()
	now, changed, open := a.Clock.Now(), a.book.Changed(), a.book.Open()
	a.mu.Unlock()
	changedPrices := prices.changes(now, a.Prices())
	if err := a.store.Write(ctx, now, changed, changedPrices); err != nil {
		return err
	}
	prices.written(changedPrices)
	a.mu.Lock()
	a.book.Flush(len(changed))
	a.mu.Unlock()
	a.Metrics.written(now, len(open))
	a.usage.count(now, changed, open, prices.latest)
	return nil
}

// observe notes whether a pod holds resources. initial pods were seen before by the broker that led before. again means
// that the pod was observed before, and its namespace could not be read.
func (a *Accountant) observe(ctx context.Context, o any, initial, again bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	holding, err := a.holdingOf(ctx, pod)
	var last *ledger.Segment
	if initial && holding != nil {
		if last, err = a.store.Last(ctx, pod.UID); err != nil {
			a.Log.Error(err, "Failed to read the last segment of a pod", "pod", client.ObjectKeyFromObject(pod))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if last != nil {
		a.book.Remember(last)
	}
	if again && a.again[pod.UID] != pod {
		return // It has changed meanwhile.
	}
	if a.holding != nil {
		a.holding[pod.UID] = holding != nil || err != nil
	}
	delete(a.again, pod.UID)
	if err != nil {
		a.again[pod.UID] = pod
		return
	}
	now := a.Clock.Now()
	if initial {
		now = a.seen
	}
	if holding == nil {
		a.book.Release(now, pod.UID)
	} else {
		a.book.Observe(now, holding)
	}
}

func (a *Accountant) release(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.again, pod.UID)
	a.book.Forget(a.Clock.Now(), pod.UID)
}

// observeAgain observes the pods whose namespace could not be read.
func (a *Accountant) observeAgain(ctx context.Context) {
	a.mu.Lock()
	again := slices.Collect(maps.Values(a.again))
	a.mu.Unlock()
	for _, pod := range again {
		a.observe(ctx, pod, false, true)
	}
}

func uidOf(o any) types.UID {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return ""
	}
	return pod.UID
}

// holdingOf returns the resources that a pod holds at its provider; nil if it has none. A pod that leaves a provider, or
// fails over from it, holds nothing there from then on, however long it still runs there. The error is that its consumer
// is not known.
func (a *Accountant) holdingOf(ctx context.Context, pod *corev1.Pod) (*ledger.Holding, error) {
	at := placement.AssignedTo(pod)
	assigned, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	if at.Provider == "" || err != nil {
		return nil, nil
	}
	var ended time.Time
	if placement.Terminal(pod) {
		if ended = endOf(pod); ended.IsZero() {
			return nil, nil // It has ended before now.
		}
	}
	h := &ledger.Holding{
		UID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Workload: placement.ApplicationOf(pod), Provider: at.Provider,
		Assigned: assigned, Requests: resources.PodRequests(&pod.Spec), Ended: ended,
	}
	var namespace corev1.Namespace
	if err := a.Client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); err != nil {
		return nil, err
	}
	h.Consumer = placement.ConsumerOf(&namespace)
	return h, nil
}

// endOf returns when the last container of a pod ended; zero if that is not known of one of them.
func endOf(pod *corev1.Pod) (end time.Time) {
	for i := range pod.Status.ContainerStatuses {
		t := pod.Status.ContainerStatuses[i].State.Terminated
		if t == nil || t.FinishedAt.IsZero() {
			return time.Time{}
		}
		if t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}
