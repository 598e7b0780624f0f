// Package dashboard has the scenarios that the dashboard must pass in a browser. They run against any catalog: in this
// package's test a small fake, elsewhere the real one.
package dashboard
