package disruption

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// slowStart is after how long a moving pod no longer counts, even if it does not run yet: a provider that starts
	// pods slowly slows moves down, but does not stop them.
	slowStart = 10 * time.Second
	// longestDelay is how long a pod waits at most before it asks again: the pods before it may be gone by then.
	longestDelay = 2 * time.Second
	// silence is after how long without asking a pod no longer blocks the pods behind it: its provider may not answer
	// whether it has ended. It keeps its position.
	silence = 2 * longestDelay
)

// Limit lets so many pods move at once, in the order in which they asked. So moves are as fast as the other providers
// start pods. A pod that need not move any more leaves the queue, so that the others do not wait behind it.
type Limit struct {
	most    int
	waiting []waiter
	// moving has the pods that left their provider and did not run elsewhere yet, with the time they left.
	moving map[types.UID]time.Time
}

// waiter is a pod that waits, with the time at which it asked last.
type waiter struct {
	uid   types.UID
	asked time.Time
}

// NewLimit returns a Limit of so many pods at once.
func NewLimit(most int) *Limit {
	return &Limit{most: most, moving: map[types.UID]time.Time{}}
}

// Waiting returns how many pods wait.
func (l *Limit) Waiting() int { return len(l.waiting) }

// Delay returns how long a pod must wait until it asks again; 0 when it may move.
func (l *Limit) Delay(uid types.UID, now time.Time) time.Duration {
	for other, left := range l.moving {
		if now.Sub(left) >= slowStart {
			delete(l.moving, other)
		}
	}
	if _, moves := l.moving[uid]; moves {
		return 0
	}
	place, free := l.ask(uid, now), l.most-len(l.moving)
	if place < free { // The pods before it in the queue have the first places.
		l.Dequeue(uid)
		l.moving[uid] = now
		return 0
	}
	return min(time.Duration(place-free+1)*slowStart/time.Duration(l.most), longestDelay)
}

// ask records that a pod asks, and returns how many pods before it in the queue ask, too.
func (l *Limit) ask(uid types.UID, now time.Time) (place int) {
	for i := range l.waiting {
		other := &l.waiting[i]
		if other.uid == uid {
			other.asked = now
			return place
		}
		if now.Sub(other.asked) <= silence {
			place++
		}
	}
	l.waiting = append(l.waiting, waiter{uid: uid, asked: now})
	return place
}

// Dequeue takes a pod out of the queue. If it moves already, it still does.
func (l *Limit) Dequeue(uid types.UID) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.uid == uid })
}

// Forget forgets a pod, which runs, has ended or is gone.
func (l *Limit) Forget(uid types.UID) {
	l.Dequeue(uid)
	delete(l.moving, uid)
}
