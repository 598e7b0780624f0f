// Package podlife is around Liqo's pod reflector of a namespace. A local pod, its ShadowPod and its remote pod each live for a while, and
// Liqo finds them by their name only. Here a ShadowPod of an earlier pod of that name is not taken for the present one's (Earlier), and the
// end of a remote pod is the end of its local pod (Ended), as on a node.
package podlife
