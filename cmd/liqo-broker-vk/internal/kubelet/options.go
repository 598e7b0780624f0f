// Package kubelet has the options of the virtual kubelet, and starts it: this one, or the one for Liqo v0.x.
package kubelet

import (
	"os"
	"time"

	"github.com/liqotech/liqo/cmd/virtual-kubelet/root"
	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// Options are the flags and the environment of the virtual kubelet.
type Options struct {
	// stock holds the flags of Liqo's own virtual kubelet. Liqo installs them itself, so that they have the same names
	// and defaults as long as we build against the same version. Some of them set package variables of Liqo (restcfg)
	// and klog.
	stock *root.Opts

	// virtualNode and podNamespace are environment variables that liqo-controller-manager sets.
	virtualNode  string
	podNamespace string

	brokerNode      string
	forwardTokens   bool
	announceRoot    bool
	opaqueAddresses bool
	directTraffic   bool

	remotePodCIDRs, remappedPodCIDRs           []string
	remoteExternalCIDRs, remappedExternalCIDRs []string

	remoteCIDRs                        []string
	remoteIPAM                         string
	remoteIPAMCA, remoteIPAMServerName string
	remoteIPAMInsecure                 bool

	flags.Process
	flags.Kubelet
	profilingAddress string

	startupTimeout time.Duration
	requestTimeout time.Duration
	StrictFlags    bool

	tracing      flags.Tracing
	notReflected notReflected
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		stock:            root.NewOpts(),
		virtualNode:      os.Getenv("VIRTUALNODE_NAME"),
		podNamespace:     os.Getenv("POD_NAMESPACE"),
		announceRoot:     true,
		Process:          flags.NewProcess(":8081"),
		Kubelet:          flags.NewKubelet(),
		profilingAddress: "127.0.0.1:6060",
		startupTimeout:   2 * time.Minute,
		requestTimeout:   time.Minute,
		tracing:          flags.NewTracing(),
	}
}

// Install binds the options to flags. liqo-controller-manager passes flags only as --flag=value, and Liqo v0.x's splits
// them at commas, so every flag of ours takes a value without a comma.
func (o *Options) Install(flags *pflag.FlagSet) {
	root.InstallFlags(flags, o.stock)
	o.notReflected.install(flags)
	o.tracing.Install(flags)

	flags.StringVar(&o.brokerNode, "broker-node", o.brokerNode,
		"The name of the broker's node: instead of its own node, the virtual kubelet serves the pods of that node that the broker "+
			"assigned to the VirtualNode (labels "+v1alpha1.VirtualNodeLabel+" and "+v1alpha1.ProviderLabel+"); needs --create-node=false")
	flags.BoolVar(&o.forwardTokens, "forward-service-account-tokens", o.forwardTokens,
		"With --broker-node: forward to the provider the tokens that a consumer's pods use to call the consumer's API server")
	flags.BoolVar(&o.announceRoot, "announce-root", o.announceRoot,
		"With --broker-node: annotate each pod with the address and the cluster where it runs ("+v1alpha1.RootIPAnnotation+" and "+
			v1alpha1.RootClusterAnnotation+"), so that consumers with a network to that cluster can reach it directly")
	flags.BoolVar(&o.opaqueAddresses, "opaque-addresses", o.opaqueAddresses,
		"With --broker-node: show each pod with an address of this cluster's external CIDR, so that consumers with Liqo's "+
			"own virtual kubelet reach it through this cluster")
	flags.BoolVar(&o.directTraffic, "direct-traffic", o.directTraffic,
		"Reach a forwarded pod over this cluster's own network connection with the cluster where the pod runs, if there is one")
	const later = " (Liqo after v1.2.0); may be repeated"
	flags.StringSliceVar(&o.remotePodCIDRs, "remote-pod-cidr", nil, "A pod CIDR of the remote cluster, as that cluster declares it"+later)
	flags.StringSliceVar(&o.remappedPodCIDRs, "remote-pod-cidr-remap", nil,
		"The CIDR to which this cluster remaps the --remote-pod-cidr at the same position"+later)
	flags.StringSliceVar(&o.remoteExternalCIDRs, "remote-external-cidr", nil,
		"An external CIDR of the remote cluster, as that cluster declares it"+later)
	flags.StringSliceVar(&o.remappedExternalCIDRs, "remote-external-cidr-remap", nil,
		"The CIDR to which this cluster remaps the --remote-external-cidr at the same position"+later)
	flags.StringArrayVar(&o.remoteCIDRs, "remote-cidr", o.remoteCIDRs,
		"A CIDR whose addresses remote pods may show without translation, in addition to the CIDRs of the remote cluster; may be repeated")
	flags.StringVar(&o.remoteIPAM, "remote-ipam", o.remoteIPAM,
		"server=HOST[:PORT] of the broker's remote IPAM (port 6000 by default), which returns the addresses at which the pods "+
			"that the broker forwarded are reached through its cluster")
	flags.StringVar(&o.remoteIPAMCA, "remote-ipam-ca", o.remoteIPAMCA,
		"A file with the CA of the remote IPAM's certificate; by default the CA of the remote cluster")
	flags.StringVar(&o.remoteIPAMServerName, "remote-ipam-server-name", o.remoteIPAMServerName,
		"The name that the remote IPAM's certificate is valid for; by default "+ipam.ServiceName)
	flags.BoolVar(&o.remoteIPAMInsecure, "remote-ipam-insecure", o.remoteIPAMInsecure,
		"Connect to the remote IPAM in plaintext, as with the server of Liqo v0.x")
	o.Process.Install(flags)
	o.Kubelet.Install(flags, "")
	flags.StringVar(&o.profilingAddress, "profiling-address", o.profilingAddress,
		"The address that /debug/pprof is served on with --enable-profiling")
	flags.DurationVar(&o.startupTimeout, "startup-timeout", o.startupTimeout,
		"How long to wait at start for missing objects and for API servers that do not answer")
	flags.DurationVar(&o.requestTimeout, "request-timeout", o.requestTimeout,
		"The deadline of each API request that is not a watch or another stream, 0 for none")
	flags.BoolVar(&o.StrictFlags, "strict-flags", o.StrictFlags, process.StrictUsage)
}
