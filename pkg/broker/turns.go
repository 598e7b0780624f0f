package broker

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// longestTurn is how long a pod waits at most before it asks again: those before it may have gone, or need not go any more.
const longestTurn = 5 * time.Second

// turns lets pods move at a limited rate, in the order in which they asked. One that does not have to move any more gives
// its turn back, so that nobody waits behind it. The core's mutex guards it.
type turns struct {
	limiter *rate.Limiter
	waiting []types.UID
}

func newTurns(perSecond float64, burst int) turns {
	return turns{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// take says how long a pod must wait until it asks again; 0, once, when it may move.
func (t *turns) take(uid types.UID, now time.Time) time.Duration {
	place := slices.Index(t.waiting, uid)
	if place < 0 {
		place = len(t.waiting)
		t.waiting = append(t.waiting, uid)
	}
	// Those before it have theirs first, whoever comes first to ask.
	missing := float64(place+1) - t.limiter.TokensAt(now)
	if missing <= 0 && t.limiter.AllowN(now, 1) {
		t.giveBack(uid)
		return 0
	}
	wait := math.Ceil(missing / float64(t.limiter.Limit()) * float64(time.Second))
	return time.Duration(min(max(wait, float64(time.Millisecond)), float64(longestTurn)))
}

func (t *turns) giveBack(uid types.UID) {
	if place := slices.Index(t.waiting, uid); place >= 0 {
		t.waiting = slices.Delete(t.waiting, place, place+1)
	}
}
