// Package leaving asks providers about the pods that leave them: whether a pod has ended there, and whether it is gone.
//
// It asks for few pods by name, and for more by a list of a remote namespace, which goes on from where an attempt ended. A list that is
// slow or too long delays the pods that it is asked for, and says nothing about whether the provider can be reached. It asks in workers of its own, one for each VirtualNode. So a drain of
// hundreds of pods needs few requests, and a provider that is slow delays its own pods only, as long as fewer hang than there
// are workers.
package leaving
