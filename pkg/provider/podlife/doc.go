// Package podlife wraps Liqo's pod reflector of a namespace. A local pod, its ShadowPod and its remote pod have
// separate lifetimes, and Liqo matches them only by name. Here the ShadowPod of an earlier pod of that name is not used
// for the current pod (Earlier), and the end of a remote pod ends its local pod (Ended), as on a node.
package podlife
