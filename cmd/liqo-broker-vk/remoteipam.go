package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/network"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// ipamOptions are the flags of the remote IPAM, which --with-aggregator enables.
type ipamOptions struct {
	address           string
	certFile, keyFile string
	insecure          bool
	limits            ipam.Limits
}

func newIPAMOptions() ipamOptions {
	return ipamOptions{
		address: fmt.Sprintf(":%d", ipam.DefaultPort),
		limits:  ipam.Limits{PerSecond: 200, Burst: 400, Concurrent: 32, Connections: 64},
	}
}

func (o *ipamOptions) install(f *pflag.FlagSet) {
	f.StringVar(&o.address, "ipam-address", o.address,
		"The address that the remote IPAM is served on with --with-aggregator, 0 to disable")
	f.StringVar(&o.certFile, "ipam-tls-cert-file", o.certFile,
		"The certificate of the remote IPAM; by default that of the kubelet API, which is also valid for the name "+ipam.ServiceName)
	f.StringVar(&o.keyFile, "ipam-tls-private-key-file", o.keyFile, "The key of the certificate of the remote IPAM")
	f.BoolVar(&o.insecure, "ipam-insecure", o.insecure,
		"Serve the remote IPAM in plaintext and without authentication, as Liqo v0.x does")
	f.Float64Var(&o.limits.PerSecond, "ipam-qps", o.limits.PerSecond, "The limit of requests per second of each consumer to the remote IPAM")
	f.IntVar(&o.limits.Burst, "ipam-burst", o.limits.Burst, "The limit of requests at once of each consumer to the remote IPAM")
	f.IntVar(&o.limits.Concurrent, "ipam-max-concurrent", o.limits.Concurrent, "The limit of requests in flight of each consumer to the remote IPAM")
	f.IntVar(&o.limits.Connections, "ipam-max-connections", o.limits.Connections,
		"The limit of connections of each consumer to the remote IPAM; each of its virtual kubelets has one")
}

// validate adds the faults. unverifiable is set if no consumer can verify the certificate of the kubelet API.
func (o *ipamOptions) validate(f *faults, unverifiable bool) {
	if o.address == "0" {
		return
	}
	f.address("--ipam-address", o.address)
	f.pair("--ipam-tls-cert-file", o.certFile, "--ipam-tls-private-key-file", o.keyFile)
	f.exclusive("--ipam-insecure", o.insecure, "--ipam-tls-cert-file", o.certFile != "")
	if unverifiable && !o.insecure && o.certFile == "" {
		f.add("--ipam-tls-cert-file is empty and --certificate-type="+string(kubeletapi.CertificateSelfSigned),
			"give the remote IPAM a certificate that consumers can verify, or disable it with --ipam-address=0")
	}
	f.limit("--ipam-qps", o.limits.PerSecond)
	f.limit("--ipam-burst", float64(o.limits.Burst))
	f.limit("--ipam-max-concurrent", float64(o.limits.Concurrent))
	f.limit("--ipam-max-connections", float64(o.limits.Connections))
}

// config returns nil if the remote IPAM is disabled.
func (o *ipamOptions) config() *network.IPAMConfig {
	if o.address == "0" {
		return nil
	}
	return &network.IPAMConfig{
		Address: o.address, CertFile: o.certFile, KeyFile: o.keyFile, Insecure: o.insecure, Limits: o.limits,
	}
}
