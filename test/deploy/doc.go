// Package deploy renders what deploy/ has, as Helm and as kustomize do: for the tests of both, for those that ask a
// real API server, and for the files that are made from the chart.
package deploy
