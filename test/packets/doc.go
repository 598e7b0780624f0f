// Package packets tests, in a sandbox with real packets (make packets), that requests reach pods through Liqo's own
// data plane, and which path they take.
package packets
