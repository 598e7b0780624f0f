// Package termination finds out, at providers, whether pods that leave have ended and are gone (Checker), and whether
// pods that were moved away in an outage are gone (Cleaner).
//
// A Checker asks about the pods that leave a provider: about few by name, about more by a list of a remote namespace,
// which continues where an attempt ended. A list that is slow or too long delays the pods that it is asked for, and
// says nothing about whether the provider can be reached. It asks in workers of its own, one for each VirtualNode. So a
// drain of hundreds of pods needs few requests, and a provider that is slow delays its own pods only, as long as fewer
// hang than there are workers.
//
// A Cleaner checks that a provider which was unreachable has removed the pods that were moved away, and asks providers
// about the pods of VirtualNodes that are gone. ShadowPods of such VirtualNodes it deletes itself: no virtual kubelet
// does.
package termination
