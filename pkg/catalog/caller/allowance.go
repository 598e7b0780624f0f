package caller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// rememberedCallers is how many callers' allowances are kept: those that called last.
const rememberedCallers = 8192

// Limits are what each caller may ask, known ones by name, strangers by host.
type Limits struct {
	PerSecond float64
	Burst     int
	// Streams are how many each may have open, TotalStreams how many all of them may.
	Streams, TotalStreams int
}

// Allowances are what callers may still ask.
type Allowances struct {
	limits Limits
	clock  clock.PassiveClock

	mu       sync.Mutex
	byCaller *lru.Cache     // By caller, *rate.Limiter; guarded by mu.
	streams  map[string]int // By caller; guarded by mu.
	total    int            // Of streams; guarded by mu.
}

// NewAllowances gives every caller the limits.
func NewAllowances(limits Limits, clk clock.PassiveClock) *Allowances {
	return &Allowances{limits: limits, clock: clk, byCaller: lru.New(rememberedCallers), streams: map[string]int{}}
}

// Key is whose allowance a request is counted against.
func Key(who *Caller, host string) string {
	if who.Known() {
		return "user " + who.Name()
	}
	return hostKey(host)
}

func hostKey(host string) string { return "host " + host }

// Take counts a request that is worth several, of which none is worth more than a burst. It returns 0, or how long the
// caller is to wait if it has nothing left, in which case nothing is counted.
func (a *Allowances) Take(key string, worth int) time.Duration {
	limiter, now := a.of(key), a.clock.Now()
	reservation := limiter.ReserveN(now, min(worth, a.limits.Burst))
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func (a *Allowances) of(key string) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.byCaller.Get(key); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // Nothing else is put in.
	}
	fresh := rate.NewLimiter(rate.Limit(a.limits.PerSecond), a.limits.Burst)
	a.byCaller.Add(key, fresh)
	return fresh
}

// Open counts a stream until close is called, once. It returns false if it is one too many.
func (a *Allowances) Open(key string) (closed func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[key] >= a.limits.Streams || a.total >= a.limits.TotalStreams {
		return nil, false
	}
	a.streams[key]++
	a.total++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.total--
		if a.streams[key]--; a.streams[key] == 0 {
			delete(a.streams, key)
		}
	}, true
}

// Streams is how many are open.
func (a *Allowances) Streams() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}
