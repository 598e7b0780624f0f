package broker

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// counts are how many pods are assigned, and how many wait for room.
func (c *core) counts() (assigned, unassigned int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for virtualNode := range c.homeOf {
		_, pods := c.state.Assigned(virtualNode)
		assigned += pods
	}
	return assigned, len(c.waiting)
}

// arrived says, once, how long a pod that was taken away from somewhere was on its way to where it is now; false if it
// was not, or if an earlier leader took it away.
func (c *core) arrived(uid types.UID, now time.Time) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left, moved := c.sentAway[uid]
	delete(c.sentAway, uid)
	return now.Sub(left), moved
}

// moving is how many pods are on their way.
func (c *core) moving() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sentAway)
}

// delayed is how many pods the rate limit of moves holds back.
func (c *core) delayed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.turns.waiting)
}

// sentAwayAt is when a pod was taken away from somewhere, if it is on its way.
func (c *core) sentAwayAt(uid types.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sentAway[uid]
}

// firstSeenRunning is true once for each assignment of a pod whose status says that it runs, when it says so of the place
// where the pod is now.
func (c *core) firstSeenRunning(pod *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, moved := c.ranBefore[pod.UID]; moved && before.Equal(lastStart(pod)) {
		return false
	}
	_, seen := c.running[pod.UID]
	c.running[pod.UID] = struct{}{}
	return !seen
}

// lastStart is when the last container of a pod started; zero if none runs.
func lastStart(pod *corev1.Pod) time.Time {
	var last time.Time
	for i := range pod.Status.ContainerStatuses {
		if running := pod.Status.ContainerStatuses[i].State.Running; running != nil && running.StartedAt.After(last) {
			last = running.StartedAt.Time
		}
	}
	return last
}
