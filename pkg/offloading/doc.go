// Package offloading offloads the namespaces of consumers to the providers: a namespace that Liqo made in this cluster
// for a consumer gets a NamespaceOffloading towards every other cluster, and pods that were created there before it
// took effect are recreated. Namespaces of consumers that would have the name of an existing one are reported.
//
// Liqo marks the objects that it made: the namespaces by its NamespaceMap controller (createNamespace), the pods by its
// webhook (mutatePod). NamespaceOffloadings without the broker's label are not changed.
package offloading
