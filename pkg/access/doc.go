// Package access says who calls and what the caller may do, as the API server knows it: client certificates of the
// cluster's CA, TokenReview and SubjectAccessReview, with answers kept for a while.
package access
