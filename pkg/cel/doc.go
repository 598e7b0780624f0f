// Package cel compiles the CEL expressions with which people choose provider clusters, and evaluates them.
//
// An expression reads two variables, provider and pod (Provider and Pod here, docs/policies.md for people), and returns
// a bool (NewFilter) or a number (NewScore). The variables have types, so that a mistyped field is an error of the
// expression and not of a pod. Expressions are untrusted code: their length is limited before they are compiled and
// their cost while they run. The values that they read are in package values. The libraries are Kubernetes 1.35's,
// except those that need an API server.
package cel
