// Package install follows README.md and docs/install.md with the programs that a reader has, Helm, kubectl and liqoctl,
// in clusters with real kubelets and containers. It runs the blocks of commands that are marked for it, and reads the
// results from the API servers. It is skipped where containers are not possible.
package install
