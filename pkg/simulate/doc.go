// Package simulate runs the broker's decisions on a virtual clock, against the arrivals, ends, failures and changes of
// a scenario, and reports which pods were placed where, when, and at which cost.
//
// Decisions are made by the packages that the broker runs: pkg/broker/state, its queue and disruption, pkg/scheduler,
// pkg/placement, eviction, the status of pkg/broker/providers; costs by pkg/ledger and pkg/price. This package has the
// world around them: consumers that create pods, providers that start pods, and the order in which pkg/broker/pods and
// pkg/broker/requeue call the state. It makes no request, and the same scenario gives the same report.
package simulate
