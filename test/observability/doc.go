// Command observability checks, by Prometheus' own libraries, what deploy/observability asks of our metrics: it is a module
// of its own because those bring more dependencies than all of the rest.
//
//	go run . generate          write what is made from the rules and the dashboard
//	go run . show [-every 30s] JOB/POD=FILE…   evaluate the dashboard on scrapes, as a table
//
// generate writes test/exposition/uses.json, by which the end-to-end suite checks a real scrape without these dependencies,
// and the dashboard as a ConfigMap. A test fails if they are out of date.
package main
