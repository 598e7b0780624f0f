package flags

import (
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Service are the flags that broker and catalog share.
type Service struct {
	Process
	NodeName string

	HomeKubeconfig string
	QPS            float32
	Burst          int

	MetricsAddress, ProfilingAddress string
}

// NewService returns the defaults.
func NewService(metricsAddress, healthProbeAddress string, qps float32, burst int) Service {
	return Service{
		Process: NewProcess(healthProbeAddress), NodeName: BrokerNode,
		QPS: qps, Burst: burst, MetricsAddress: metricsAddress, ProfilingAddress: "0",
	}
}

// BrokerNode is the name of the broker's Node.
const BrokerNode = "liqo-broker"

// InstallBrokerNode adds the flag with the name of the broker's Node.
func InstallBrokerNode(f *pflag.FlagSet, node *string) {
	f.StringVar(node, "broker-node", BrokerNode, "The name of the broker's Node")
}

// Install adds the flags.
func (o *Service) Install(f *pflag.FlagSet) {
	o.Process.Install(f)
	InstallBrokerNode(f, &o.NodeName)
	f.StringVar(&o.HomeKubeconfig, "home-kubeconfig", o.HomeKubeconfig, "The kubeconfig of the broker's cluster, if not run in a pod")
	f.Float32Var(&o.QPS, "client-qps", o.QPS, "The limit of requests per second to the API server of the broker's cluster")
	f.IntVar(&o.Burst, "client-max-burst", o.Burst, "The burst limit of requests to that API server")
	f.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "The address that /metrics is served on, 0 to disable")
	f.StringVar(&o.ProfilingAddress, "profiling-address", o.ProfilingAddress,
		"The address that /debug/pprof is served on without authentication, such as 127.0.0.1:6060; 0 to disable")
}

// Validate adds the faults.
func (o *Service) Validate(f *Faults) {
	for _, problem := range validation.IsDNS1123Subdomain(o.NodeName) {
		f.Add("--broker-node="+o.NodeName, problem)
	}
	f.Limit("--client-qps", float64(o.QPS))
	f.Limit("--client-max-burst", float64(o.Burst))
	f.ServedAddress("--metrics-address", o.MetricsAddress)
	f.ServedAddress("--profiling-address", o.ProfilingAddress)
	o.Process.Validate(f)
}

// Served returns an address for a Config, where "" disables the server.
func Served(address string) string {
	if address == "0" {
		return ""
	}
	return address
}
