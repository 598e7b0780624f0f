// Package auth authenticates, authorises and limits callers as the API server knows them: client certificates of the
// cluster's CA, TokenReview and SubjectAccessReview, whose answers are cached.
package auth
