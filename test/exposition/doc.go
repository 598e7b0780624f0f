// Package exposition checks a real scrape of a component: docs/metrics.md must describe it, and it must have everything
// that the rules and the dashboard of deploy/observability use. Its tests compare the same, and the examples in the
// document, with the metrics that the components register.
//
// uses.json has the metrics in queries. test/observability writes it. That is a separate module, so that no other
// module needs Prometheus' dependencies.
package exposition
