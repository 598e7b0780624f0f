// Package collector is an OpenTelemetry collector for tests: on loopback, in plaintext, by OTLP over gRPC, as
// pkg/tracing sends. It keeps the spans in memory, and waits for those that a test wants to see.
package collector
