package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// startsASecond is how many pods are created and deleted each second.
	startsASecond = 50
	// rest is how long the idle broker is measured.
	rest = time.Minute
)

// assignments are the pods of a crowd as the API server shows them, and how long each of them waited for its
// assignment.
type assignments struct {
	mu    sync.Mutex
	bound map[string]time.Time // By name: the pods that are not assigned yet. Guarded by mu.
	ready set                  // Guarded by mu.
	took  []time.Duration      // Guarded by mu.
	// first is the time of the first assignment since it was last reset to zero. Guarded by mu.
	first   time.Time
	changed chan struct{} // Closed, and replaced, when a pod is Ready. Guarded by mu.
}

func newAssignments() *assignments {
	return &assignments{bound: map[string]time.Time{}, ready: set{}, changed: make(chan struct{})}
}

func (a *assignments) see(pod *corev1.Pod, gone bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	since, waits := a.bound[pod.Name]
	switch assigned := pod.Labels[v1alpha1.VirtualNodeLabel] != ""; {
	case gone:
		delete(a.bound, pod.Name)
	case !assigned && !waits:
		a.bound[pod.Name] = now
	case assigned && waits:
		delete(a.bound, pod.Name)
		a.took = append(a.took, now.Sub(since))
		if a.first.IsZero() {
			a.first = now
		}
	}
	if is := !gone && isReady(pod); is != a.ready[pod.Name] {
		a.ready.put(pod.Name, is)
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// wait waits until n pods are Ready.
func (a *assignments) wait(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		ready, changed := len(a.ready), a.changed
		a.mu.Unlock()
		if ready >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods are Ready: %w", ready, n, ctx.Err())
		case <-changed:
		}
	}
}

// taken returns, sorted and in milliseconds, the waiting times of the pods that were assigned since the last call.
func (a *assignments) taken() []float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.took)
	ms := make([]float64, 0, len(a.took))
	for _, took := range a.took {
		ms = append(ms, took.Seconds()*1000)
	}
	a.took = nil
	return ms
}

// broker measures the broker alone, with 100 providers: idle, while pods are created and deleted, when another replica
// begins to lead, and with twice as many pods.
func (b *bench) broker(ctx context.Context, r *report) error {
	made, err := b.newCrowd(ctx)
	if err != nil {
		return err
	}
	if err := made.ready(ctx); err != nil {
		return err
	}
	// The other clusters are not needed.
	if err := b.Freeze(sandbox.Consumer(1)); err != nil {
		return err
	}
	defer func() { _ = b.Resume(sandbox.Consumer(1)) }()
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	seen := newAssignments()
	group.Go(func() error { return made.renew(working) })
	group.Go(func() error { return made.kubelets(working, seen.see) })
	group.Go(func() error {
		defer stop()
		for _, n := range b.sizes.or(10000) {
			if err := (&brokerRun{bench: b, crowd: made, seen: seen, r: r, pods: n}).measure(working); err != nil {
				return fmt.Errorf("%d pods: %w", n, err)
			}
		}
		return nil
	})
	return group.Wait()
}

// brokerRun is a run with a given number of pods.
type brokerRun struct {
	*bench
	*crowd
	seen *assignments
	r    *report
	pods int
	// oldest and newest are the numbers of the existing pods, newest excluded.
	oldest, newest int
}

func (m *brokerRun) name(i int) string { return fmt.Sprintf("crowd-%d-%06d", m.pods, i) }

// create creates a pod that is already bound to the broker's node, as if by kube-scheduler.
func (m *brokerRun) create(ctx context.Context, number int) error {
	pod := newPod(oneHop, m.name(number))
	pod.Spec.NodeName = poolNode
	_, err := m.home.Kube.CoreV1().Pods(oneHop).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// fill creates pods until n exist, and waits until they run.
func (m *brokerRun) fill(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := m.newest; i < m.oldest+n; i++ {
		group.Go(func() error { return m.create(creating, i) })
	}
	m.newest = m.oldest + n
	if err := group.Wait(); err != nil {
		return err
	}
	return m.seen.wait(ctx, n)
}

// leader returns the process of the leading broker replica.
func (m *brokerRun) leader(ctx context.Context) (sandbox.ProcessStatus, error) {
	name, err := m.BrokerLeader(ctx)
	if err != nil {
		return sandbox.ProcessStatus{}, err
	}
	status := m.Status()
	for i := range status.Processes {
		if p := &status.Processes[i]; sandbox.Broker+"/"+p.Pod == name {
			return *p, nil
		}
	}
	return sandbox.ProcessStatus{}, fmt.Errorf("the leader %s does not run", name)
}

// during runs do, and returns the leader's memory in MB afterwards and its CPU use meanwhile.
func (m *brokerRun) during(ctx context.Context, do func(context.Context) error) (memory, cpus float64, err error) {
	before, err := m.leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := do(ctx); err != nil {
		return 0, 0, err
	}
	lasted := time.Since(began)
	after, err := m.leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	if after.PID != before.PID {
		return 0, 0, fmt.Errorf("another replica leads: %s instead of %s", after.Pod, before.Pod)
	}
	return float64(after.ResidentMemory) / 1e6, (after.CPU - before.CPU).Seconds() / lasted.Seconds(), nil
}

func (m *brokerRun) measure(ctx context.Context) error {
	if err := m.fill(ctx, m.pods); err != nil {
		return err
	}
	pods := fmt.Sprintf("%d pods", m.pods)
	m.say("  %s run", pods)
	resting := func(ctx context.Context) error { return pause(ctx, rest) }
	if err := pause(ctx, settle); err != nil {
		return err
	}
	first, cpus, err := m.during(ctx, resting)
	if err != nil {
		return err
	}
	m.r.add(ours, pods+" at rest, memory (RSS)", "MB", first).atMost(250)
	m.r.add(ours, pods+" at rest, CPUs", "", cpus).atMost(0.2)

	m.seen.taken()
	before, err := patches(ctx, m.home)
	if err != nil {
		return err
	}
	last, cpus, err := m.during(ctx, m.comeAndGo)
	if err != nil {
		return err
	}
	took := m.seen.taken()
	after, err := patches(ctx, m.home)
	if err != nil {
		return err
	}
	m.r.add(ours, fmt.Sprintf("%d start and end a second, CPUs", startsASecond), "", cpus).atMost(1)
	m.r.add(ours, "bound to assigned, p50", "ms", quantileOf(took, 0.5))
	m.r.add(ours, "bound to assigned, p99", "ms", quantileOf(took, 0.99)).atMost(100)
	m.r.add(ours, "a patch of a pod at the API server meanwhile, p99 at most", "ms", 1000*boundOf(before, after, 0.99))
	m.r.add(ours, fmt.Sprintf("memory after %s of that ÷ before", m.churn), "", last/first).atMost(1.2)

	if err := m.nextLeader(ctx); err != nil {
		return err
	}
	return m.twice(ctx, resting)
}

// comeAndGo creates pods and deletes the same number, oldest first, for a while.
func (m *brokerRun) comeAndGo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.churn+m.timeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / startsASecond)
	defer tick.Stop()
	for end := time.Now().Add(m.churn); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-tick.C:
		}
		oldest, newest := m.oldest, m.newest
		m.oldest, m.newest = oldest+1, newest+1
		group.Go(func() error { return m.create(ctx, newest) })
		group.Go(func() error {
			return m.home.Kube.CoreV1().Pods(oneHop).Delete(ctx, m.name(oldest), metav1.DeleteOptions{})
		})
	}
	return group.Wait()
}

// nextLeader kills the leader while pods are created, and measures the time from when another replica leads to its
// first assignment.
func (m *brokerRun) nextLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	leader, err := m.BrokerLeader(ctx)
	if err != nil {
		return err
	}
	if err := m.Kill(leader); err != nil {
		return err
	}
	m.seen.mu.Lock()
	m.seen.first = time.Time{}
	m.seen.mu.Unlock()
	if err := m.create(ctx, m.newest); err != nil {
		return err
	}
	m.newest++
	led, err := m.leadsAfter(ctx, leader)
	if err != nil {
		return err
	}
	if err := m.seen.wait(ctx, m.newest-m.oldest); err != nil {
		return err
	}
	m.seen.mu.Lock()
	first := m.seen.first
	m.seen.mu.Unlock()
	m.r.add(ours, "another replica leads to its first decision", "s", first.Sub(led).Seconds()).atMost(5)
	return m.Restart(ctx, leader)
}

// leadsAfter waits until a replica other than the given one holds the lease, and returns when it acquired it.
func (m *brokerRun) leadsAfter(ctx context.Context, former string) (time.Time, error) {
	for {
		var lease coordinationv1.Lease
		key := client.ObjectKey{Namespace: sandbox.BrokerComponent, Name: sandbox.BrokerComponent}
		if err := m.home.Client.Get(ctx, key, &lease); err != nil {
			return time.Time{}, err
		}
		if now, err := m.BrokerLeader(ctx); err == nil && now != former {
			return ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time, nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
}

// twice compares the memory of one process with the run's number of pods and with twice as many.
func (m *brokerRun) twice(ctx context.Context, resting func(context.Context) error) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	once, _, err := m.during(ctx, resting)
	if err != nil {
		return err
	}
	if err := m.fill(ctx, 2*m.pods); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	twice, cpus, err := m.during(ctx, resting)
	if err != nil {
		return err
	}
	m.r.add(ours, fmt.Sprintf("%d pods at rest, memory (RSS)", 2*m.pods), "MB", twice)
	m.r.add(ours, fmt.Sprintf("%d pods at rest, CPUs", 2*m.pods), "", cpus)
	m.r.add(ours, fmt.Sprintf("memory with %d pods ÷ with %d", 2*m.pods, m.pods), "", twice/once).atMost(1.9)
	return nil
}
