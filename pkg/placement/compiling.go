package placement

import (
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// ErrDeferred means that the filter of a pod is not compiled now, because the pods of its owner have used up their
// share of the compile time. It is an ErrInvalid with the pod's rules: an assigned pod needs no filter to leave a
// provider.
var ErrDeferred = fmt.Errorf(
	"%w: compiling its filter is postponed, because other filters of the same owner take long to compile", ErrInvalid)

const (
	// compilingBurst is the time that an owner may use at once; after that it may use one compilingPart of all time.
	compilingBurst = 2 * time.Second
	compilingPart  = 10
	// maxOwners is the number of owners that are remembered before owners without recent use are dropped.
	maxOwners = 1000
)

// Compiling shares the time for compiling the filters of pods between their owners: an owner with expensive filters
// delays only its own pods. Filters in the cache cost no time, and filters of policies, which administrators write, do
// not count.
type Compiling struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// used has the counted time by owner; guarded by mu.
	used map[string]usedTime
}

type usedTime struct {
	took time.Duration
	at   time.Time
}

// NewCompiling returns a Compiling in which no owner has used any time.
func NewCompiling(passive clock.PassiveClock) *Compiling {
	return &Compiling{clock: passive, used: map[string]usedTime{}}
}

// left returns how much of an owner's used time still counts.
func (u usedTime) left(now time.Time) time.Duration {
	return max(0, u.took-max(0, now.Sub(u.at))/compilingPart)
}

// allowed reports whether an owner may have a filter compiled. A nil Compiling allows all.
func (c *Compiling) allowed(owner string) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[owner].left(c.clock.Now()) < compilingBurst
}

// charge counts the time that an owner's filter took.
func (c *Compiling) charge(owner string, took time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if len(c.used) > maxOwners {
		maps.DeleteFunc(c.used, func(_ string, u usedTime) bool { return u.left(now) == 0 })
	}
	c.used[owner] = usedTime{took: c.used[owner].left(now) + took, at: now}
}

// OwnerOf returns the owner that a pod is counted to: its consumer, or its namespace if it comes from this cluster. No
// owner has more than its share in a sum.
func OwnerOf(namespace *corev1.Namespace) string {
	if consumer := ConsumerOf(namespace); consumer != "" {
		return consumer
	}
	return "namespace/" + namespace.Name
}
