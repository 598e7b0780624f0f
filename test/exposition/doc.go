// Package exposition checks what a real scrape of a component shows Prometheus: that docs/metrics.md has it, and that
// everything is there which the rules and the dashboard of deploy/observability ask for. Its tests hold the same, and the
// document's own examples, against what the components register.
//
// What is asked for is in uses.json, which test/observability writes: a module of its own, so that nobody else needs
// Prometheus' dependencies.
package exposition
