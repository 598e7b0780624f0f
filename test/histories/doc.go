// Package histories runs the broker against clusters in memory, in virtual time, and judges what happened.
//
// A history is made from a seed: providers, pods, and faults. The broker is the real one: its controllers, its queues,
// its lease, its connections to providers. What it talks to are models: the API servers, Liqo's virtual kubelets and
// controllers, the providers. Their watches lag, lose their connection and list again; their writes conflict, and time
// out after they took effect; processes are killed, and stop and go on. When the faults are over, everything has to
// settle. The checker reads the record of all API servers afterwards. It shares no code with the broker.
package histories
