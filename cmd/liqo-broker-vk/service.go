package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	flagsutils "github.com/liqotech/liqo/pkg/utils/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/logging"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// processOptions are the flags of every role that runs as a server.
type processOptions struct {
	healthProbeAddress  string
	logLevel, logFormat string
}

func newProcessOptions(healthProbeAddress string) processOptions {
	return processOptions{healthProbeAddress: healthProbeAddress, logLevel: "info", logFormat: "json"}
}

func (o *processOptions) install(f *pflag.FlagSet) {
	f.StringVar(&o.healthProbeAddress, "health-probe-address", o.healthProbeAddress,
		"The address that the probes (/livez and /readyz) are served on, 0 to disable")
	f.StringVar(&o.logLevel, "log-level", o.logLevel,
		"The least severe log lines shown: debug, info, warn or error; debug raises --klog.v to 4 unless that is set")
	f.StringVar(&o.logFormat, "log-format", o.logFormat, "The format of the logs: json or console")
}

func (o *processOptions) validate(f *faults) {
	f.servedAddress("--health-probe-address", o.healthProbeAddress)
	if _, err := zapcore.ParseLevel(o.logLevel); err != nil {
		f.add("--log-level="+o.logLevel, "use one of debug, info, warn, error")
	}
	f.oneOf("--log-format", o.logFormat, "json", "console")
}

// kubeletOptions are the flags of the kubelet API that broker and virtual kubelet share.
type kubeletOptions struct {
	clientCAFile             string
	certDir                  string
	kubeletAuthorizationMode string
}

func newKubeletOptions() kubeletOptions {
	return kubeletOptions{certDir: "/tmp/certs", kubeletAuthorizationMode: string(kubeletapi.AuthorizationWebhook)}
}

// install adds the flags. also names what else the CA is for.
func (o *kubeletOptions) install(f *pflag.FlagSet, also string) {
	f.StringVar(&o.kubeletAuthorizationMode, "kubelet-authorization-mode", o.kubeletAuthorizationMode,
		"Who authorises the callers of the kubelet API: Webhook (the API server, by SubjectAccessReview) or "+
			"AlwaysAllow (every authenticated caller may do everything)")
	f.StringVar(&o.clientCAFile, "client-ca-file", o.clientCAFile,
		"The CA of the client certificates accepted by the kubelet API"+also+"; by default the one published in the "+
			"ConfigMap kube-system/extension-apiserver-authentication")
	f.StringVar(&o.certDir, "cert-dir", o.certDir, "The directory where the serving certificate is kept")
}

func (o *kubeletOptions) validate(f *faults, port uint16) {
	f.oneOf("--kubelet-authorization-mode", o.kubeletAuthorizationMode,
		string(kubeletapi.AuthorizationWebhook), string(kubeletapi.AuthorizationAlwaysAllow))
	f.require(o.certDir, "--cert-dir", "give a directory that can be written")
	f.when(port == 0, "--listen-port=0", "use a port from 1 to 65535")
}

// serviceOptions are the flags that broker and catalog share.
type serviceOptions struct {
	processOptions
	nodeName string

	homeKubeconfig string
	qps            float32
	burst          int

	metricsAddress, profilingAddress string
}

func newServiceOptions(metricsAddress, healthProbeAddress string, qps float32, burst int) serviceOptions {
	return serviceOptions{
		processOptions: newProcessOptions(healthProbeAddress), nodeName: defaultBrokerNode,
		qps: qps, burst: burst, metricsAddress: metricsAddress, profilingAddress: "0",
	}
}

// defaultBrokerNode is the name of the broker's Node.
const defaultBrokerNode = "liqo-broker"

func installBrokerNode(f *pflag.FlagSet, node *string) {
	f.StringVar(node, "broker-node", defaultBrokerNode, "The name of the broker's Node")
}

func (o *serviceOptions) install(f *pflag.FlagSet) {
	o.processOptions.install(f)
	installBrokerNode(f, &o.nodeName)
	f.StringVar(&o.homeKubeconfig, "home-kubeconfig", o.homeKubeconfig, "The kubeconfig of the broker's cluster, if not run in a pod")
	f.Float32Var(&o.qps, "client-qps", o.qps, "The limit of requests per second to the API server of the broker's cluster")
	f.IntVar(&o.burst, "client-max-burst", o.burst, "The limit of requests at once to that API server")
	f.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress, "The address that /metrics is served on, 0 to disable")
	f.StringVar(&o.profilingAddress, "profiling-address", o.profilingAddress,
		"The address that /debug/pprof is served on to everybody who reaches it, such as 127.0.0.1:6060; 0 to disable")
}

func (o *serviceOptions) validate(f *faults) {
	for _, problem := range validation.IsDNS1123Subdomain(o.nodeName) {
		f.add("--broker-node="+o.nodeName, problem)
	}
	f.limit("--client-qps", float64(o.qps))
	f.limit("--client-max-burst", float64(o.burst))
	f.servedAddress("--metrics-address", o.metricsAddress)
	f.servedAddress("--profiling-address", o.profilingAddress)
	o.processOptions.validate(f)
}

// served returns an address for a Config, where "" disables the server.
func served(address string) string {
	if address == "0" {
		return ""
	}
	return address
}

// service is a role that runs in the broker's cluster.
type service interface {
	install(*pflag.FlagSet)
	validate() error
	common() *serviceOptions
	// needsLiqo returns what keeps the service from running, given what requireLiqo has returned.
	needsLiqo(missing error) error
	run(context.Context, logr.Logger, *rest.Config) error
}

func (o *serviceOptions) common() *serviceOptions { return o }

func (o *serviceOptions) needsLiqo(missing error) error { return missing }

// newServiceCommand completes a command so that it validates the options, sets up the log and the connection with the
// broker's cluster, and runs the service.
func newServiceCommand(cmd *cobra.Command, s service, logs io.Writer) *cobra.Command {
	flagsutils.InitKlogFlags(cmd.Flags())
	s.install(cmd.Flags())
	cmd.Args = noArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.validate(); err != nil {
			return err
		}
		o := s.common()
		log, err := logging.SetUp(logs, o.logLevel, o.logFormat, cmd.Flags())
		if err != nil {
			return err
		}
		home, err := connectionConfig(o.homeKubeconfig, cmd.Name())
		if err != nil {
			return fmt.Errorf("connecting to the broker's cluster (--home-kubeconfig, or run in a pod): %w", err)
		}
		built := thisBuild()
		log.Info("Starting", "role", cmd.Name(), "version", built.Version, "commit", built.Commit, "node", o.nodeName)
		if err := s.needsLiqo(requireLiqo(cmd.Context(), home)); err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(cmd.Context())
		if address := served(o.profilingAddress); address != "" {
			group.Go(func() error { return process.ServeProfiles(ctx, address) })
		}
		group.Go(func() error { return s.run(ctx, log, home) })
		if err := group.Wait(); err != nil {
			return err
		}
		log.Info("Stopped")
		return nil
	}
	return cmd
}
