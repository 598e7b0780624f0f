package belief

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// longestMoveDelay is how long a pod waits at most before it asks again: the pods before it may be gone by then.
const longestMoveDelay = 5 * time.Second

// moveLimit lets pods move at a limited rate, in the order in which they asked. A pod that need not move any more leaves
// the queue, so that the others do not wait behind it.
type moveLimit struct {
	limiter *rate.Limiter
	waiting []types.UID
}

func newMoveLimit(perSecond float64, burst int) moveLimit {
	return moveLimit{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// delay returns how long a pod must wait until it asks again; 0, once, when it may move.
func (l *moveLimit) delay(uid types.UID, now time.Time) time.Duration {
	place := slices.Index(l.waiting, uid)
	if place < 0 {
		place = len(l.waiting)
		l.waiting = append(l.waiting, uid)
	}
	// The pods before it in the queue have the tokens that there are.
	missing := float64(place+1) - l.limiter.TokensAt(now)
	if missing <= 0 && l.limiter.AllowN(now, 1) {
		l.leave(uid)
		return 0
	}
	delay := math.Ceil(missing / float64(l.limiter.Limit()) * float64(time.Second))
	return time.Duration(min(max(delay, float64(time.Millisecond)), float64(longestMoveDelay)))
}

// leave takes a pod out of the queue.
func (l *moveLimit) leave(uid types.UID) {
	if place := slices.Index(l.waiting, uid); place >= 0 {
		l.waiting = slices.Delete(l.waiting, place, place+1)
	}
}
