// Package leaving asks providers about the pods that leave them: whether a pod has ended there, and whether it is gone.
//
// It asks by list, once for all pods of a remote namespace, in workers of its own, one for each VirtualNode. So a drain of
// hundreds of pods needs few requests, and a provider that is slow delays its own pods only, as long as fewer hang than there
// are workers.
package leaving
