package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// ipamOptions are the flags of the broker's remote IPAM, which --with-aggregator switches on.
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
		"Serve the remote IPAM in plaintext and believe its callers, as Liqo v0.x does")
	f.Float64Var(&o.limits.PerSecond, "ipam-qps", o.limits.PerSecond, "How many requests a second the remote IPAM answers each consumer")
	f.IntVar(&o.limits.Burst, "ipam-burst", o.limits.Burst, "How many requests at once the remote IPAM answers each consumer")
	f.IntVar(&o.limits.Concurrent, "ipam-max-concurrent", o.limits.Concurrent, "How many requests of each consumer the remote IPAM works on in parallel")
	f.IntVar(&o.limits.Connections, "ipam-max-connections", o.limits.Connections,
		"How many connections each consumer may have to the remote IPAM: each of its virtual kubelets keeps one")
}

// validate adds what is wrong with the flags. With unverifiable, no consumer can verify the certificate of the kubelet API.
func (o *ipamOptions) validate(f *faults, unverifiable bool) {
	if o.address == "0" {
		return
	}
	f.address("--ipam-address", o.address)
	if (o.certFile == "") != (o.keyFile == "") {
		f.add("only one of --ipam-tls-cert-file and --ipam-tls-private-key-file is given", "give both or none")
	}
	if o.insecure && o.certFile != "" {
		f.add("--ipam-insecure together with --ipam-tls-cert-file", "leave one of them out")
	}
	if unverifiable && !o.insecure && o.certFile == "" {
		f.add("--ipam-tls-cert-file is empty and --certificate-type="+string(kubeletapi.CertificateSelfSigned),
			"give the remote IPAM a certificate that consumers can verify, or disable it with --ipam-address=0")
	}
	f.limits(
		limit{"--ipam-qps", o.limits.PerSecond},
		limit{"--ipam-burst", float64(o.limits.Burst)},
		limit{"--ipam-max-concurrent", float64(o.limits.Concurrent)},
		limit{"--ipam-max-connections", float64(o.limits.Connections)},
	)
}

// config is nil when the remote IPAM is disabled.
func (o *ipamOptions) config() *broker.IPAMConfig {
	if o.address == "0" {
		return nil
	}
	return &broker.IPAMConfig{
		Address: o.address, CertFile: o.certFile, KeyFile: o.keyFile, Insecure: o.insecure, Limits: o.limits,
	}
}
