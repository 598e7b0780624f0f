// Package broker is the virtual kubelet of one node behind which stand many provider clusters: it owns the Node object
// and its kubelet API, chooses a provider for every pod bound to the node (pkg/scheduler decides), writes the choice
// as a label, watches the providers, and moves pods away from those that fail.
//
// It never forwards a pod itself: the label is what the virtual kubelet of a provider's VirtualNode goes by
// (pkg/provider, Config.BrokerNode). All that must survive a restart is in the API.
package broker
