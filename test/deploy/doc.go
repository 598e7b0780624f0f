// Package deploy renders the objects in deploy/ as Helm and as kustomize do. The tests of both use it, the tests
// against a real API server, and the generator of the files that are made from the chart.
package deploy
