// Package lease has the lease by which the replicas of the broker elect a leader, and rejects the writes of a leader
// whose lease has lapsed.
//
// A process that is stopped (SIGSTOP, a stalled or suspended machine) for longer than its lease continues afterwards
// with its old state. client-go's elector notices only when it cannot renew for the renew deadline, and renews a lease
// that has lapsed if no other replica holds it at that moment. Meanwhile another replica may lead or have led,
// providers may have recovered, and drains may have ended. So a lapsed lease is never renewed: from then on the process
// writes nothing to its own cluster, and it exits. The next process probes and reads everything again, as every new
// leader does. That is one rule for all writes. The alternative, to continue and to verify each old probe, cached
// object and decision, needs one rule for each.
package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// ErrLapsed means that the lease was held and not renewed within its duration.
var ErrLapsed = errors.New("the leader election lease has lapsed: this process or its API server hung for longer than the lease duration")

// checkInterval is how often Run checks the lease.
const checkInterval = time.Second

// Lease is the lock of client-go's elector. It knows when this process renewed it.
type Lease struct {
	*resourcelock.LeaseLock
	clock clock.PassiveClock

	mu sync.Mutex
	// renewed is when the last renewal began that succeeded; zero while the lease is not held. It lasts so long from
	// then. Guarded by mu.
	renewed time.Time
	lasts   time.Duration
	// lapsed is final. Guarded by mu.
	lapsed bool
}

// New returns the Lease of a name, for a client that gives up a request after RequestTimeout.
func New(home *rest.Config, name types.NamespacedName, renewDeadline time.Duration, passive clock.PassiveClock) (*Lease, error) {
	config := rest.AddUserAgent(rest.CopyConfig(home), "leader-election")
	config.Timeout = RequestTimeout(renewDeadline)
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", name, err)
	}
	return NewForClient(leases, name, passive)
}

// RequestTimeout is when a request of the elector is given up: early enough for another one before the renew deadline, as
// controller-runtime's is (pkg/leaderelection).
func RequestTimeout(renewDeadline time.Duration) time.Duration {
	return max(renewDeadline/2, time.Second)
}

// NewForClient returns the Lease of a name, for a client that gives up requests by itself, after RequestTimeout.
func NewForClient(leases coordinationv1client.LeasesGetter, name types.NamespacedName, passive clock.PassiveClock) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", name, err)
	}
	return newLease(leases, name, host+"_"+string(uuid.NewUUID()), passive), nil
}

func newLease(leases coordinationv1client.LeasesGetter, name types.NamespacedName, identity string, passive clock.PassiveClock) *Lease {
	return &Lease{clock: passive, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
}

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(&record, func() error { return l.LeaseLock.Create(ctx, record) })
}

// Update implements resourcelock.Interface. It returns ErrLapsed if the lease has lapsed. client-go's elector would
// also release, when it ends, a lease that another replica has acquired since: it trusts the holder that it saw last.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(&record, func() error { return l.LeaseLock.Update(ctx, record) })
}

func (l *Lease) write(record *resourcelock.LeaderElectionRecord, send func() error) error {
	if err := l.Check(); err != nil {
		return err
	}
	// The other replicas count from when they see the renewal, which is later.
	began := l.clock.Now()
	if err := send(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if record.HolderIdentity != l.Identity() {
		l.renewed = time.Time{} // It was released, after all that the leader runs has ended.
		return nil
	}
	l.renewed, l.lasts = began, max(time.Second, time.Duration(record.LeaseDurationSeconds)*time.Second)
	return nil
}

// Check returns ErrLapsed if the lease was held and has lapsed. A replica that never held it, or released it, has not.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.renewed.IsZero() && elapsed(l.renewed, l.clock.Now()) >= l.lasts {
		l.lapsed = true
	}
	if l.lapsed {
		return ErrLapsed
	}
	return nil
}

// elapsed returns the longer of the times that passed by the monotonic clock and by the wall clock. The monotonic clock
// stops while a machine is suspended (clock_gettime(2)), the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Run returns ErrLapsed soon after the lease has lapsed, and nil when ctx ends.
func (l *Lease) Run(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := l.Check(); err != nil {
				return err
			}
		}
	}
}

// Wrap answers a client's mutating requests with ErrLapsed once the lease has lapsed. This is the last step before a
// request is sent, after client-go's rate limit. A process that is stopped between the check and the sending still
// sends that request: pods are patched with the version that was read, so a change that another leader made since
// causes a conflict.
func (l *Lease) Wrap(next http.RoundTripper) http.RoundTripper {
	return transport{lease: l, next: next}
}

type transport struct {
	lease *Lease
	next  http.RoundTripper
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := t.lease.Check(); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	return t.next.RoundTrip(r)
}

func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
