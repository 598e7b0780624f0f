package scheduler

import "time"

type cycle struct{}

// Decide chooses a provider, and one of its slices, for the pod, and writes what it found into into, whose memory it
// uses. A nil policy is the zero Policy. It reserves nothing: the caller does so with Assign, before it decides again.
func (s *State) Decide(now time.Time, pod *Pod, policy *Policy, into *Decision) {
	_, _, _ = now, pod, policy
	*into = Decision{}
}
