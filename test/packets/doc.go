// Package packets tests that requests reach pods through Liqo's own data plane, and which way they take, in a sandbox whose
// packets are real (make packets).
package packets
