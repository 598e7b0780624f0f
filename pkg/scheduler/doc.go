// Package scheduler chooses, for every pod, one of many provider clusters, and within it one of its slices.
//
// State has the providers and the pods assigned to them. State.Decide reads it and writes a Decision: a verdict for
// every provider (the filter it failed, or its score by plugin) and the winner. The structure and the terms are
// kube-scheduler's: filters, scores with weights (package score), reserve (State.Assign). Package verdict has the texts
// of a decision. Policies name provider clusters; whether a pod fits is decided per slice, a Liqo VirtualNode with a
// quota of its own.
//
// The package is pure: no API client, no clock, no I/O, no goroutine, no random order. The same State, Pod, Policy and
// time give the same Decision, in whatever order the State was filled; every tie is broken by name.
package scheduler
