package caller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// rememberedCallers is how many callers' allowances are kept: those that called last.
	rememberedCallers = 8192
	// filesPerRequest is how many files of the dashboard count as one request: they cost little, and a page has thirty.
	filesPerRequest = 10
	// requestsPerReview and reviewBurst are what callers may have the API server asked: a tenth of their requests, and at
	// once enough for whoever signs in, on the dashboard and elsewhere.
	requestsPerReview = 10
	reviewBurst       = 25
)

// Limits are what each caller may ask, known ones by name, strangers by host.
type Limits struct {
	PerSecond float64
	Burst     int
	// Streams are how many each may have open, TotalStreams how many all of them may.
	Streams, TotalStreams int
	// Connections are how many a host may have open.
	Connections int
}

// Allowances are what callers may still ask.
type Allowances struct {
	limits Limits
	clock  clock.PassiveClock

	// Whoever has used up one of these has not used up another.
	requests, files, reviews *buckets

	mu      sync.Mutex
	streams map[string]int // By caller; guarded by mu.
	total   int            // Of streams; guarded by mu.
}

// NewAllowances gives every caller the limits.
func NewAllowances(limits Limits, clk clock.PassiveClock) *Allowances {
	return &Allowances{
		limits: limits, clock: clk, streams: map[string]int{},
		requests: newBuckets(limits.PerSecond, limits.Burst),
		files:    newBuckets(limits.PerSecond*filesPerRequest, limits.Burst*filesPerRequest),
		reviews:  newBuckets(limits.PerSecond/requestsPerReview, reviewBurst),
	}
}

// Key is whose allowance a request is counted against.
func Key(who *Caller, host string) string {
	if who.Known() {
		return userKey(who.User)
	}
	return hostKey(host)
}

func userKey(who user.Info) string { return "user " + who.GetName() }

func hostKey(host string) string { return "host " + host }

// Take counts a request that is worth several, of which none is worth more than a burst. It returns 0, or how long the
// caller is to wait if it has nothing left, in which case nothing is counted.
func (a *Allowances) Take(key string, worth int) time.Duration {
	return a.requests.take(key, worth, a.clock.Now())
}

// TakeFile counts a file of the dashboard, as Take does.
func (a *Allowances) TakeFile(host string) time.Duration {
	return a.files.take(hostKey(host), 1, a.clock.Now())
}

// SpendReview counts a question to the API server on account of a known caller. It returns nil or a *LimitError.
func (a *Allowances) SpendReview(who user.Info) error { return a.spendReview(userKey(who)) }

func (a *Allowances) spendReview(key string) error {
	if wait := a.reviews.take(key, 1, a.clock.Now()); wait > 0 {
		return &LimitError{RetryAfter: wait}
	}
	return nil
}

// buckets are what callers may still ask of one kind.
type buckets struct {
	perSecond rate.Limit
	burst     int

	mu       sync.Mutex
	byCaller *lru.Cache // *rate.Limiter; guarded by mu.
}

func newBuckets(perSecond float64, burst int) *buckets {
	return &buckets{perSecond: rate.Limit(perSecond), burst: burst, byCaller: lru.New(rememberedCallers)}
}

func (b *buckets) take(key string, worth int, now time.Time) time.Duration {
	reservation := b.of(key).ReserveN(now, min(worth, b.burst))
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func (b *buckets) of(key string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.byCaller.Get(key); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // Nothing else is put in.
	}
	fresh := rate.NewLimiter(b.perSecond, b.burst)
	b.byCaller.Add(key, fresh)
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
