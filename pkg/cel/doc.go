// Package cel compiles the CEL expressions with which people choose provider clusters, and evaluates them.
//
// An expression reads two variables, provider and pod (Provider and Pod here, docs/policies.md for people), and gives
// a bool (NewFilter) or a number (NewScore). The variables have types, so that a mistyped field is an error of the
// expression and not of a pod. Expressions are other people's code: their length is limited before they are compiled
// and their cost while they run. The values that they read are in the package values. The libraries are those of
// Kubernetes 1.35 that need no API server.
package cel
