// Command suites runs the end-to-end suites of Liqo and of virtual-kubelet, and specs of Kubernetes' conformance suite,
// from their Go modules, in sandboxes: with Liqo's virtual kubelet, with ours in its place, and with the broker.
// results.json has the result of each test, notes.go the reasons for tests that do not pass, and docs/compatibility.md
// shows both.
//
// It fails if a test fails without a noted reason, if a test passes although a reason is noted, or if a test passes
// with Liqo's virtual kubelet but not with ours in its place.
package main
