// Package drift wraps Liqo's reflectors of pods, ConfigMaps and Secrets. It handles changes of local objects that Liqo
// does not apply in the remote cluster: it records an event on the object, or has the remote object replaced.
package drift
