// Command observability checks the metrics that deploy/observability uses, with Prometheus' own libraries. It is a
// module of its own, because these have more dependencies than everything else together.
//
//	go run . generate          write the files that are generated from the rules and the dashboard
//	go run . show [-every 30s] JOB/POD=FILE…   evaluate the dashboard on scrapes, as a table
//
// generate writes test/exposition/uses.json, with which the end-to-end suite checks a real scrape without these
// dependencies, and the dashboard as a ConfigMap. A test fails if they are out of date.
package main
