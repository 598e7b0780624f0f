// Package disruption decides which pods may leave their provider now: not too many at once, and of replicas no more
// than may be unavailable. Its types are not safe for concurrent use, and read no clock.
package disruption
