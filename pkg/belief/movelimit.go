package belief

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// slowStart is after how long a pod that moves no longer counts, though it does not run yet: a provider that starts pods
	// slowly slows moves down, and stops none.
	slowStart = 10 * time.Second
	// longestMoveDelay is how long a pod waits at most before it asks again: the pods before it may be gone by then.
	longestMoveDelay = 2 * time.Second
)

// moveLimit lets so many pods move at once, in the order in which they asked. So moves are as fast as the other providers start
// pods. A pod that need not move any more leaves the queue, so that the others do not wait behind it.
type moveLimit struct {
	most    int
	waiting []types.UID
	// moving has the pods that left their provider and did not run elsewhere yet, with the time they left.
	moving map[types.UID]time.Time
}

func newMoveLimit(most int) moveLimit {
	return moveLimit{most: most, moving: map[types.UID]time.Time{}}
}

// delay returns how long a pod must wait until it asks again; 0 when it may move.
func (l *moveLimit) delay(uid types.UID, now time.Time) time.Duration {
	for other, left := range l.moving {
		if now.Sub(left) >= slowStart {
			delete(l.moving, other)
		}
	}
	if _, moves := l.moving[uid]; moves {
		return 0
	}
	place := slices.Index(l.waiting, uid)
	if place < 0 {
		place = len(l.waiting)
		l.waiting = append(l.waiting, uid)
	}
	free := l.most - len(l.moving)
	if place < free { // The pods before it in the queue have the first places.
		l.stays(uid)
		l.moving[uid] = now
		return 0
	}
	return min(time.Duration(place-free+1)*slowStart/time.Duration(l.most), longestMoveDelay)
}

// stays takes a pod out of the queue.
func (l *moveLimit) stays(uid types.UID) {
	if place := slices.Index(l.waiting, uid); place >= 0 {
		l.waiting = slices.Delete(l.waiting, place, place+1)
	}
}

// leave forgets a pod, which runs, has ended or is gone.
func (l *moveLimit) leave(uid types.UID) {
	l.stays(uid)
	delete(l.moving, uid)
}
