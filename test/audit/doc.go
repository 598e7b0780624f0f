// Package audit compares the permissions of a ServiceAccount with the requests that it made, using the audit log of an
// API server.
package audit
