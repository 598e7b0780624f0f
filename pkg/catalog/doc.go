// Package catalog serves the catalog: an HTTP API, described in docs/catalog.md and by its own OpenAPI document, and a
// dashboard. Answers come from package federation, which informers keep up to date; who asks, and what the caller may see
// and do, is package caller's; the shapes are package api's.
package catalog
