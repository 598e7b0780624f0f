// Package process has the parts that the virtual kubelets of all versions of Liqo share and that do not depend on Liqo:
// the wait at the start, the probes, the servers, and the Node.
package process
