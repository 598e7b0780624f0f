// Package collector is an OpenTelemetry collector for tests. It listens on loopback, in plaintext, for OTLP over gRPC,
// which pkg/tracing sends. It keeps the spans in memory, and waits for the spans that a test expects.
package collector
