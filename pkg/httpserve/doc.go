// Package httpserve runs an HTTP server for the lifetime of a context.
package httpserve
