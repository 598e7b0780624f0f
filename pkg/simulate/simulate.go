package simulate

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// programs is how many bytes of compiled expressions are kept, as in the broker.
const programs = 32 << 20

// Options are the settings of a run that are not in a scenario.
type Options struct {
	// State and Rules are the broker's settings, unless the scenario has others. The clock of State is not used.
	State state.Config
	Rules placement.Rules
	// ProbeTimeout is how long a provider may take to answer a probe.
	ProbeTimeout time.Duration
	// Progress is called now and then with the share of the simulated time that has passed, 0 to 1; nil is never.
	Progress func(done float64)
}

// Run runs a scenario, which was made by Load, Parse or FromCluster, and returns its report. The error is the error of
// ctx, or names a workload whose criteria cannot be read.
func Run(ctx context.Context, sc *Scenario, opts Options) (*Report, error) {
	s := newSimulation(sc, opts)
	s.startProviders()
	if err := s.startWorkloads(ctx); err != nil {
		return nil, err
	}
	for i := range sc.Events {
		event := &sc.Events[i]
		s.at(sc.Start.Add(event.At.Duration), func() { s.apply(event) })
	}
	if err := s.run(ctx, opts.Progress); err != nil {
		return nil, err
	}
	return s.report(), nil
}

// clock is the virtual time. It implements clock.PassiveClock.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// simulation is one run.
type simulation struct {
	clock                       *clock
	end                         time.Time
	state                       *state.Federation
	rules                       placement.Rules
	probeInterval, probeTimeout time.Duration
	events                      events
	scheduled                   uint64

	providers map[string]*provider
	order     []*provider
	// namespaces is the NamespaceMap of each provider, mapped has only it.
	namespaces *offloadingv1beta1.NamespaceMap
	mapped     []*offloadingv1beta1.NamespaceMap
	// pods are those that exist, by name; replicas has them by placement.ReplicasOf, waiting counts those without a
	// provider.
	pods     map[types.NamespacedName]*pod
	replicas map[replicasKey]map[*pod]struct{}
	waiting  int
	// waking means that unassigned pods are about to be woken; woken is when they last were. ticking means that they
	// are woken each second.
	waking, ticking bool
	woken           time.Time

	*recorder
}

func newSimulation(sc *Scenario, opts Options) *simulation {
	cfg, rules := opts.State, opts.Rules
	rules.FailoverAfter = orDefault(sc.Broker.FailoverAfter, rules.FailoverAfter)
	cfg.ReserveAfter = orDefault(sc.Broker.ReserveAfter, cfg.ReserveAfter)
	cfg.SuspicionWindow = orDefault(sc.Broker.SuspicionWindow, cfg.SuspicionWindow)
	if n := sc.Broker.MovesAtOnce; n != nil {
		cfg.MovesAtOnce = *n
	}
	interval := orDefault(sc.Broker.ProbeInterval, cfg.ProbeInterval)
	cfg.ProbeInterval = max(interval, steadyInterval) // After how long no probe counts as unobserved time depends on it.
	virtual := &clock{now: sc.Start.Time}
	cfg.Clock = virtual
	namespaces := sc.namespaceMap()
	return &simulation{
		namespaces: namespaces, mapped: []*offloadingv1beta1.NamespaceMap{namespaces},
		clock: virtual, end: sc.Start.Add(sc.Duration.Duration), state: state.New(cfg), rules: rules,
		probeInterval: interval, probeTimeout: opts.ProbeTimeout, providers: map[string]*provider{},
		pods: map[types.NamespacedName]*pod{}, replicas: map[replicasKey]map[*pod]struct{}{},
		recorder: newRecorder(sc),
	}
}

// event is a step at a time. Of two at the same time, the one that was scheduled first is first.
type event struct {
	at     time.Time
	number uint64
	run    func()
}

// events is a heap. It implements heap.Interface.
type events []event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	if c := e[i].at.Compare(e[j].at); c != 0 {
		return c < 0
	}
	return e[i].number < e[j].number
}

func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) {
	if of, ok := x.(event); ok {
		*e = append(*e, of)
	}
}

func (e *events) Pop() any {
	last := len(*e) - 1
	of := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return of
}

// at schedules a step.
func (s *simulation) at(t time.Time, run func()) {
	s.scheduled++
	heap.Push(&s.events, event{at: t, number: s.scheduled, run: run})
}

func (s *simulation) after(d time.Duration, run func()) { s.at(s.clock.now.Add(d), run) }

// stepsUntilCheck is how many steps are between two checks of the context and of the progress.
const stepsUntilCheck = 2000

// run takes the steps until the end.
func (s *simulation) run(ctx context.Context, progress func(float64)) error {
	for steps := 0; len(s.events) > 0; steps++ {
		if steps%stepsUntilCheck == 0 {
			done := float64(s.clock.Since(s.scenario.Start.Time)) / float64(s.scenario.Duration.Duration)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("scenario %s, after %.0f%% of its time: %w", s.scenario.Name, 100*done, err)
			}
			if progress != nil {
				progress(done)
			}
		}
		next, _ := heap.Pop(&s.events).(event)
		if !next.at.Before(s.end) {
			break
		}
		s.clock.now = next.at
		next.run()
	}
	s.clock.now = s.end
	return nil
}

// The times of requeue.Pods.
const (
	unassignedInterval = 200 * time.Millisecond
	dueInterval        = time.Second
)

// requeueUnassigned has the unassigned pods woken soon, as requeue.Pods does. Without one, nothing is to wake.
func (s *simulation) requeueUnassigned() {
	if s.waking || s.waiting == 0 {
		return
	}
	s.waking = true
	at := s.woken.Add(unassignedInterval)
	if at.Before(s.clock.now) {
		at = s.clock.now
	}
	s.at(at, func() {
		s.waking = false
		s.wake(false)
	})
}

// tick wakes the unassigned pods each second, as long as there are any.
func (s *simulation) tick() {
	if s.ticking {
		return
	}
	s.ticking = true
	s.after(dueInterval, func() {
		s.ticking = false
		if s.waiting > 0 {
			s.tick()
			s.wake(true)
		}
	})
}

func (s *simulation) wake(due bool) {
	s.woken = s.clock.now
	names, more := s.state.Wake(due)
	for _, name := range names {
		if p := s.pods[name]; p != nil && p.phase == waits {
			s.assign(p)
		}
	}
	if more {
		s.requeueUnassigned()
	}
}

// startWorkloads reads the criteria of all workloads, and schedules their first pods.
func (s *simulation) startWorkloads(ctx context.Context) error {
	policies := newPolicies(s.scenario, s.rules)
	for i := range s.scenario.Consumers {
		c := &s.scenario.Consumers[i]
		if c.Grant != nil {
			s.state.SetGrant(c.ID, &scheduler.Grant{Sum: resources.RoundDown(c.Grant)})
		}
		s.state.SetTerms(c.ID, fairshare.TermsOf(&v1alpha1.ConsumerClusterSpec{Weight: c.Weight, Guaranteed: c.Guaranteed}))
		for k := range c.Workloads {
			w, err := newWorkload(ctx, policies, s.scenario.Seed, c, &c.Workloads[k])
			if err != nil {
				return fmt.Errorf("consumers[%d].workloads[%d]: %w", i, k, err)
			}
			arrive := func() {
				for range w.spec.Arrivals.Initial {
					s.arrive(w)
				}
				s.awaitArrival(w)
			}
			if w.spec.AssignedTo != nil {
				arrive() // Before any decision.
				continue
			}
			s.at(s.clock.now, arrive)
		}
	}
	return nil
}

// awaitArrival schedules the next pod of a workload.
func (s *simulation) awaitArrival(w *workload) {
	if at, comes := w.stream.next(s.clock.now, s.end); comes {
		s.at(at, func() {
			s.arrive(w)
			s.awaitArrival(w)
		})
	}
}
