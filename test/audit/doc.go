// Package audit compares what a ServiceAccount may do with what it did, by the audit log of an API server.
package audit
