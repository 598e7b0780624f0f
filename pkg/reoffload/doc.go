// Package reoffload sends the namespaces of consumers on to the providers: a namespace that Liqo made in this cluster for
// a consumer gets a NamespaceOffloading towards every other cluster, and pods that were created there before it took
// effect are made anew.
//
// Who marks what is Liqo's: the namespace by its NamespaceMap controller (createNamespace), the pods by its webhook
// (mutatePod). NamespaceOffloadings that people made are never touched.
package reoffload
