// Package histories simulates the broker against clusters in memory, in virtual time, and judges the result.
//
// A history is generated from a seed: providers, pods, and faults. The broker is the real one: its controllers, its
// queues, its lease, its connections to providers. Everything that it talks to is a model: the API servers, Liqo's
// virtual kubelets and controllers, the providers. Watches lag, lose their connection and list again. Writes conflict,
// or time out after they took effect. Processes are killed, or paused and resumed. When the faults are over, everything
// has to settle. The checker (package judge) reads the record of all API servers afterwards. It shares no code with the
// broker.
package histories
