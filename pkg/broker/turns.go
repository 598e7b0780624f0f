package broker

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// turns lets pods move at a limited rate. A pod that has to wait is told until when; one that does not have to move any
// more gives its turn back, so that nobody waits behind it. The core's mutex guards it.
type turns struct {
	limiter *rate.Limiter
	at      map[types.UID]time.Time
	// last is the latest of at.
	last time.Time
}

func newTurns(perSecond float64, burst int) turns {
	return turns{limiter: rate.NewLimiter(rate.Limit(perSecond), burst), at: map[types.UID]time.Time{}}
}

// take says how long a pod must wait until it may move; 0, once, when it may.
func (t *turns) take(uid types.UID, now time.Time) time.Duration {
	at, waits := t.at[uid]
	if waits && at.After(now) {
		return at.Sub(now)
	}
	if (waits || len(t.at) == 0) && t.limiter.AllowN(now, 1) {
		t.giveBack(uid)
		return 0
	}
	if t.last.Before(now) {
		t.last = now
	}
	t.last = t.last.Add(time.Duration(float64(time.Second) / float64(t.limiter.Limit())))
	t.at[uid] = t.last
	return t.last.Sub(now)
}

func (t *turns) giveBack(uid types.UID) {
	delete(t.at, uid)
	if len(t.at) == 0 {
		t.last = time.Time{}
	}
}
