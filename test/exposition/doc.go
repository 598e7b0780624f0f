// Package exposition checks what a real scrape of a component shows Prometheus: that docs/metrics.md has it, and that
// everything is there which the rules and the dashboard of deploy/observability ask for. Its tests hold the same, and the
// document's own examples, against what the components register.
//
// uses.json has the metrics in queries. test/observability writes it. That is a module of its own, so that no other module
// needs Prometheus' dependencies.
package exposition
