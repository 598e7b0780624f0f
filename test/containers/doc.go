// Package containers tests the broker with real kubelets and real containers: a consumer, the broker and two providers,
// each with a node of its own (sandbox.Options.Containers). It is skipped where that is not possible.
package containers
