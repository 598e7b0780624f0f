// Package queue has the pods that fitted no provider, and chooses which of them to try again after a change. Its types
// are not safe for concurrent use, and read no clock.
package queue
