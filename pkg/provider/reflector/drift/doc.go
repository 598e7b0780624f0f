// Package drift is around Liqo's reflectors of pods, ConfigMaps and Secrets. It is for changes of local objects that
// Liqo does not make in the remote cluster: it writes so on the object, or has the remote object replaced.
package drift
