// Package dashboard has what the dashboard must do in a browser, as scenarios that run against any catalog: in this
// package's test a small stand-in, elsewhere the real one.
package dashboard
