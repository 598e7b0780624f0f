// Package e2e holds the end-to-end suites. They run on real clusters (test/sandbox), and every assertion reads the API
// of those clusters.
package e2e
