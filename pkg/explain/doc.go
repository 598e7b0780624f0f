// Package explain says what the broker would decide about a pod, and why, from what the API tells: it needs no broker
// that runs.
package explain
