package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// observation is what one probe of one provider found.
type observation struct {
	began, at time.Time
	up        bool
	took      time.Duration
	// problem is why it is not up.
	problem string
	// kubelets says of every VirtualNode whether the lease of its virtual kubelet is live.
	kubelets map[string]bool
}

// target is one provider to be probed: its VirtualNodes, with the namespaces of their leases.
type target struct {
	id           string
	virtualNodes map[string]string
}

// prober probes every provider in a goroutine of its own, so that none waits for another.
type prober struct {
	home        kubernetes.Interface
	connections *connections
	interval    time.Duration
	timeout     time.Duration
	// report is called with every observation, from the provider's goroutine.
	report func(id string, o observation)

	wait sync.WaitGroup

	mu sync.Mutex
	// running by provider id; guarded by mu.
	running map[string]*probing
	stopped bool // Guarded by mu.
}

type probing struct {
	stop context.CancelFunc

	mu     sync.Mutex
	target target // Guarded by mu.

	// live is what was last seen of the virtual kubelets; only the provider's goroutine uses it.
	live map[string]bool
}

func newProber(home kubernetes.Interface, c *connections, times Times, report func(string, observation)) *prober {
	return &prober{
		home: home, connections: c, interval: times.ProbeInterval, timeout: times.ProbeTimeout, report: report,
		running: map[string]*probing{},
	}
}

// watch has a provider probed from now on; what it had been told of it before is replaced.
func (p *prober) watch(t target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if known, ok := p.running[t.id]; ok {
		known.mu.Lock()
		known.target = t
		known.mu.Unlock()
		return
	}
	// It outlives the reconciliation that asks for it: forget and stopAll end it.
	ctx, stop := context.WithCancel(context.Background())
	started := &probing{stop: stop, target: t}
	p.running[t.id] = started
	p.wait.Add(1)
	go func() {
		defer p.wait.Done()
		// Jitter keeps the probes of many providers apart.
		wait.JitterUntilWithContext(ctx, func(ctx context.Context) { p.look(ctx, started) }, p.interval, 0.2, true)
	}()
}

// forget ends the probing of a provider.
func (p *prober) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.running[id]; ok {
		known.stop()
		delete(p.running, id)
	}
}

// stopAll ends all probing, for good, and waits for it.
func (p *prober) stopAll() {
	p.mu.Lock()
	p.stopped = true
	for id, known := range p.running {
		known.stop()
		delete(p.running, id)
	}
	p.mu.Unlock()
	p.wait.Wait()
}

func (p *prober) look(ctx context.Context, of *probing) {
	of.mu.Lock()
	t := of.target
	of.mu.Unlock()
	o := observation{began: time.Now(), kubelets: make(map[string]bool, len(t.virtualNodes))}

	// The provider's answer and the leases at home are asked for side by side: a provider that hangs costs no time.
	var leases sync.WaitGroup
	leases.Add(1)
	go func() {
		defer leases.Done()
		for name, namespace := range t.virtualNodes {
			live, known := p.kubeletLives(ctx, namespace, name)
			if !known {
				live = of.live[name]
			}
			o.kubelets[name] = live
		}
	}()
	o.took, o.problem = p.ask(ctx, t)
	leases.Wait()
	of.live = o.kubelets
	o.at, o.up = time.Now(), o.problem == ""
	if ctx.Err() == nil {
		p.report(t.id, o)
	}
}

// ask tries the identities of a provider until one is answered.
func (p *prober) ask(ctx context.Context, t target) (took time.Duration, problem string) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	problem = "no kubeconfig"
	for name := range t.virtualNodes {
		c := p.connections.get(name)
		if c == nil {
			continue
		}
		took, err := c.probe(ctx)
		if err == nil {
			return took, ""
		}
		problem = err.Error()
		if ctx.Err() != nil {
			problem = fmt.Sprintf("no answer within %s", p.timeout)
		}
	}
	return 0, problem
}

// kubeletLives says whether somebody holds the lease by which the virtual kubelets of a VirtualNode elect a leader, if
// the API server says so or that there is none.
func (p *prober) kubeletLives(ctx context.Context, namespace, name string) (live, known bool) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	lease, err := p.home.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, kerrors.IsNotFound(err)
	}
	return leaseIsLive(lease, time.Now()), true
}

// leaseIsLive allows for twice the duration, since the holder's clock may differ.
func leaseIsLive(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time) <= 2*time.Duration(*s.LeaseDurationSeconds)*time.Second
}
