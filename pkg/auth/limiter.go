package auth

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Limiter is a token bucket for each caller. It remembers the callers that called last.
type Limiter struct {
	perSecond rate.Limit
	burst     int

	mu       sync.Mutex
	byCaller *lru.Cache // *rate.Limiter by caller; guarded by mu.
}

// NewLimiter returns the buckets of so many callers.
func NewLimiter(perSecond float64, burst, callers int) *Limiter {
	return &Limiter{perSecond: rate.Limit(perSecond), burst: burst, byCaller: lru.New(callers)}
}

// Take counts a request that costs worth requests, each at most a burst. It returns 0, or the time that the caller must
// wait if its bucket is empty; in that case nothing is counted.
func (l *Limiter) Take(caller string, worth int, now time.Time) time.Duration {
	// Not by a reservation that is canceled: canceling restores less when others have reserved since.
	bucket, tokens := l.bucketOf(caller), min(worth, l.burst)
	if bucket.AllowN(now, tokens) {
		return 0
	}
	missing := float64(tokens) - bucket.TokensAt(now)
	return max(1, time.Duration(missing/float64(l.perSecond)*float64(time.Second)))
}

// Spend counts requests that were already answered, each at most a burst. The bucket may then be empty for some time.
func (l *Limiter) Spend(caller string, worth int, now time.Time) {
	l.bucketOf(caller).ReserveN(now, min(worth, l.burst))
}

func (l *Limiter) bucketOf(caller string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.byCaller.Get(caller); ok {
		return known.(*rate.Limiter)
	}
	fresh := rate.NewLimiter(l.perSecond, l.burst)
	l.byCaller.Add(caller, fresh)
	return fresh
}
