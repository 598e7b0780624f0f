package main

import (
	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// legacyOptions are the flags that only the controller manager of Liqo v0.x passes.
type legacyOptions struct {
	labelsNotReflected      []string
	annotationsNotReflected []string

	homeClusterName    string
	foreignClusterName string
	ipamServer         string
}

func (o *legacyOptions) install(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.labelsNotReflected, "labels-not-reflected", nil,
		"The keys of labels not to be reflected to the remote cluster, besides those of the VirtualNode (Liqo v0.x)")
	flags.StringSliceVar(&o.annotationsNotReflected, "annotations-not-reflected", nil,
		"The keys of annotations not to be reflected to the remote cluster, besides those of the VirtualNode (Liqo v0.x)")
	flags.StringVar(&o.homeClusterName, "home-cluster-name", "", "Ignored: clusters are identified by their id (Liqo v0.x)")
	flags.StringVar(&o.foreignClusterName, "foreign-cluster-name", "", "Ignored: clusters are identified by their id (Liqo v0.x)")
	flags.StringVar(&o.ipamServer, "ipam-server", "",
		"Ignored: addresses are translated by the network Configuration (Liqo v0.x)")
}

// logIgnored logs the given flags that have no effect.
func (o *legacyOptions) logIgnored(log logr.Logger) {
	for _, ignored := range []struct{ flag, value, because string }{
		{"--home-cluster-name", o.homeClusterName, "clusters are identified by their id"},
		{"--foreign-cluster-name", o.foreignClusterName, "clusters are identified by their id"},
		{"--ipam-server", o.ipamServer, "addresses are translated by the network Configuration"},
	} {
		if ignored.value != "" {
			log.Info("Ignoring a flag of Liqo v0.x", "flag", ignored.flag, "because", ignored.because)
		}
	}
}
