// Package exposition knows what each component shows Prometheus: by asking the packages themselves (Registered), by what
// docs/metrics.md says of them (Documented), and by what a real scrape says (Scraped). Tests hold the three together.
//
// The rules and the dashboard of deploy/observability are checked against the same: test/observability, a module of its
// own because of Prometheus' dependencies, writes down in uses.json which metrics and labels they ask for, and Check
// finds those that a scrape does not have.
package exposition
