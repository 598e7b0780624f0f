// Command suites runs the end-to-end suites of Liqo and of virtual-kubelet, and specs of Kubernetes' conformance, from their Go modules, in
// sandboxes: against Liqo's virtual kubelet, against ours in its place, and against the broker. results.json keeps what became of each
// test, notes.go why some do not pass, and docs/compatibility.md shows both.
//
// It fails when a test fails for no noted reason, when one passes for which a reason is noted, and when one passes with Liqo's virtual
// kubelet and not with ours in its place.
package main
