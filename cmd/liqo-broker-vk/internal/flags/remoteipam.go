package flags

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/network"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// RemoteIPAM are the flags of the remote IPAM, which --with-aggregator enables.
type RemoteIPAM struct {
	Address           string
	CertFile, KeyFile string
	Insecure          bool
	Limits            ipam.Limits
}

// NewRemoteIPAM returns the defaults.
func NewRemoteIPAM() RemoteIPAM {
	return RemoteIPAM{
		Address: fmt.Sprintf(":%d", ipam.DefaultPort),
		Limits:  ipam.Limits{PerSecond: 200, Burst: 400, Concurrent: 32, Connections: 64},
	}
}

// Install adds the flags.
func (o *RemoteIPAM) Install(f *pflag.FlagSet) {
	f.StringVar(&o.Address, "ipam-address", o.Address,
		"The address that the remote IPAM is served on with --with-aggregator, 0 to disable")
	f.StringVar(&o.CertFile, "ipam-tls-cert-file", o.CertFile,
		"The certificate of the remote IPAM; by default the certificate of the kubelet API, which is also valid for the name "+
			ipam.ServiceName)
	f.StringVar(&o.KeyFile, "ipam-tls-private-key-file", o.KeyFile, "The key of the certificate of the remote IPAM")
	f.BoolVar(&o.Insecure, "ipam-insecure", o.Insecure,
		"Serve the remote IPAM in plaintext and without authentication, as Liqo v0.x does")
	f.Float64Var(&o.Limits.PerSecond, "ipam-qps", o.Limits.PerSecond,
		"The limit of requests per second of each consumer to the remote IPAM")
	f.IntVar(&o.Limits.Burst, "ipam-burst", o.Limits.Burst, "The burst limit of requests of each consumer to the remote IPAM")
	f.IntVar(&o.Limits.Concurrent, "ipam-max-concurrent", o.Limits.Concurrent,
		"The limit of requests in flight of each consumer to the remote IPAM")
	f.IntVar(&o.Limits.Connections, "ipam-max-connections", o.Limits.Connections,
		"The limit of connections of each consumer to the remote IPAM; each of its virtual kubelets has one")
}

// Validate adds the faults. unverifiable is set if no consumer can verify the certificate of the kubelet API.
func (o *RemoteIPAM) Validate(f *Faults, unverifiable bool) {
	if o.Address == "0" {
		return
	}
	f.Address("--ipam-address", o.Address)
	f.Pair("--ipam-tls-cert-file", o.CertFile, "--ipam-tls-private-key-file", o.KeyFile)
	f.Exclusive("--ipam-insecure", o.Insecure, "--ipam-tls-cert-file", o.CertFile != "")
	if unverifiable && !o.Insecure && o.CertFile == "" {
		f.Add("--ipam-tls-cert-file is empty and --certificate-type="+string(kubeletapi.CertificateSelfSigned),
			"give the remote IPAM a certificate that consumers can verify, or disable it with --ipam-address=0")
	}
	f.Limit("--ipam-qps", o.Limits.PerSecond)
	f.Limit("--ipam-burst", float64(o.Limits.Burst))
	f.Limit("--ipam-max-concurrent", float64(o.Limits.Concurrent))
	f.Limit("--ipam-max-connections", float64(o.Limits.Connections))
}

// Config returns nil if the remote IPAM is disabled.
func (o *RemoteIPAM) Config() *network.IPAMConfig {
	if o.Address == "0" {
		return nil
	}
	return &network.IPAMConfig{
		Address: o.Address, CertFile: o.CertFile, KeyFile: o.KeyFile, Insecure: o.Insecure, Limits: o.Limits,
	}
}
