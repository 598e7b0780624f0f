package main

import (
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

// serviceOptions are the flags that the broker and the catalog have in common.
type serviceOptions struct {
	nodeName string

	homeKubeconfig string
	qps            float32
	burst          int

	metricsAddress, healthProbeAddress string
	logLevel, logFormat                string
}

// newServiceOptions has the defaults that they share.
func newServiceOptions(metricsAddress, healthProbeAddress string, qps float32, burst int) serviceOptions {
	return serviceOptions{
		nodeName: "liqo-broker", qps: qps, burst: burst,
		metricsAddress: metricsAddress, healthProbeAddress: healthProbeAddress, logLevel: "info", logFormat: "json",
	}
}

func (o *serviceOptions) install(f *pflag.FlagSet) {
	f.StringVar(&o.homeKubeconfig, "home-kubeconfig", o.homeKubeconfig, "The kubeconfig of the broker's cluster, if not run in a pod")
	f.StringVar(&o.nodeName, "broker-node", o.nodeName, "The name of the broker's Node")
	f.Float32Var(&o.qps, "client-qps", o.qps, "How many requests a second are made to the API server of the broker's cluster")
	f.IntVar(&o.burst, "client-max-burst", o.burst, "How many requests may be made at once")
	f.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress, "The address that /metrics is served on, 0 to disable")
	f.StringVar(&o.healthProbeAddress, "health-probe-address", o.healthProbeAddress,
		"The address that /livez and /readyz are served on, 0 to disable")
	f.StringVar(&o.logLevel, "log-level", o.logLevel, "The least severe log lines shown: debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", o.logFormat, "The format of the logs: json or console")
}

func (o *serviceOptions) validate(f *faults) {
	for _, problem := range validation.IsDNS1123Subdomain(o.nodeName) {
		f.add(fmt.Sprintf("--broker-node=%s", o.nodeName), problem)
	}
	f.limits(limit{"--client-qps", float64(o.qps)}, limit{"--client-max-burst", float64(o.burst)})
	if served(o.metricsAddress) != "" {
		f.address("--metrics-address", o.metricsAddress)
	}
	if served(o.healthProbeAddress) != "" {
		f.address("--health-probe-address", o.healthProbeAddress)
	}
	f.oneOf("--log-level", o.logLevel, "debug", "info", "warn", "error")
	f.oneOf("--log-format", o.logFormat, "json", "console")
}

// served is an address as configurations have it: "" is for nothing that is served.
func served(address string) string {
	if address == "0" {
		return ""
	}
	return address
}

// begin sets up the log, and the connection to the broker's cluster as one of the roles of the program.
func (o *serviceOptions) begin(role string, flags *pflag.FlagSet, logs io.Writer) (logr.Logger, *rest.Config, error) {
	log, err := setUpLogging(logs, o.logLevel, o.logFormat, flags)
	if err != nil {
		return log, nil, err
	}
	home, err := connectionConfig(o.homeKubeconfig, role)
	if err != nil {
		return log, nil, fmt.Errorf("connecting to the broker's cluster (--home-kubeconfig, or run in a pod): %w", err)
	}
	return log, home, nil
}
