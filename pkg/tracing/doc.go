// Package tracing sends spans to an OpenTelemetry collector, and carries what ties those of several processes together in
// an annotation of the pod they are about. Without a collector nothing is made and nothing is written.
package tracing
