// Package offloading sends the namespaces of consumers on to the providers: a namespace that Liqo made in this cluster
// for a consumer gets a NamespaceOffloading towards every other cluster, and pods that were created there before it
// took effect are recreated. Namespaces of consumers that would have the name of one that exists are reported.
//
// Liqo marks what it made: the namespaces by its NamespaceMap controller (createNamespace), the pods by its webhook
// (mutatePod). NamespaceOffloadings without the broker's label are not changed.
package offloading
