// Package caller says who calls the catalog, on behalf of which consumer, and what the caller may do. Kubernetes decides:
// tokens and client certificates are those of the cluster (TokenReview, its CA), rights are RBAC's (SubjectAccessReview).
package caller
