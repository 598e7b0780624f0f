package main

import (
	"context"
	"fmt"
	"io"
	"time"

	flagsutils "github.com/liqotech/liqo/pkg/utils/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// catalogOptions is the command line of the catalog.
type catalogOptions struct {
	homeKubeconfig string
	nodeName       string

	address   string
	plainHTTP bool
	certFile  string
	keyFile   string
	clientCA  string

	readAuth, anonymousToggle bool

	historyInterval time.Duration

	limits caller.Limits
	qps    float32
	burst  int

	metricsAddress, healthProbeAddress string
	logLevel, logFormat                string
}

func newCatalogOptions() *catalogOptions {
	return &catalogOptions{
		nodeName: newBrokerOptions().nodeName, address: ":8000", historyInterval: 30 * time.Second,
		limits: caller.Limits{PerSecond: 50, Burst: 100, Streams: 10, TotalStreams: 1000},
		qps:    50, burst: 100,
		// It runs beside the broker, in one network namespace.
		metricsAddress: ":8082", healthProbeAddress: ":8083", logLevel: "info", logFormat: "json",
	}
}

func newCatalogCommand(logs io.Writer) *cobra.Command {
	o := newCatalogOptions()
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "An HTTP API and a dashboard that show the federation and let consumers choose",
		Long: "catalog serves, over HTTPS, what the broker knows of the federation: its providers, where pods are, and\n" +
			"why. Consumers select the providers that they want, operators enable and disable them. Any number may run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCatalog(cmd.Context(), o, cmd.Flags(), logs)
		},
	}
	o.install(cmd.Flags())
	return cmd
}

func (o *catalogOptions) install(f *pflag.FlagSet) {
	flagsutils.InitKlogFlags(f)
	f.StringVar(&o.homeKubeconfig, "home-kubeconfig", o.homeKubeconfig,
		"The kubeconfig of the broker's cluster, if not run in a pod")
	f.StringVar(&o.nodeName, "broker-node", o.nodeName, "The name of the broker's Node")

	f.StringVar(&o.address, "address", o.address, "The address that the API and the dashboard are served on")
	f.BoolVar(&o.plainHTTP, "plain-http", o.plainHTTP,
		"Serve HTTP without TLS, and so without client certificates: behind something that has TLS")
	f.StringVar(&o.certFile, "tls-cert-file", o.certFile,
		"The certificate of the server, read anew when it changes; by default one that nobody vouches for, made at start")
	f.StringVar(&o.keyFile, "tls-key-file", o.keyFile, "The key of the certificate of the server")
	f.StringVar(&o.clientCA, "client-ca-file", o.clientCA,
		"The CA of the client certificates accepted; by default the one that the API server publishes")

	f.BoolVar(&o.readAuth, "read-auth", o.readAuth,
		"Show the providers only to who may list providerclusters, or acts for a consumer")
	f.BoolVar(&o.anonymousToggle, "anonymous-toggle", o.anonymousToggle,
		"Let everybody who reaches the catalog enable and disable providers by /api/toggle")

	f.DurationVar(&o.historyInterval, "history-interval", o.historyInterval,
		"How often what providers do is noted for the charts, which show the last 240 notes")

	f.Float64Var(&o.limits.PerSecond, "requests-per-second", o.limits.PerSecond,
		"How many requests a second each caller may make: who is known by name, others by address")
	f.IntVar(&o.limits.Burst, "requests-burst", o.limits.Burst, "How many requests each caller may make at once")
	f.IntVar(&o.limits.Streams, "streams-per-caller", o.limits.Streams,
		"How many streams of changes each caller may have open")
	f.IntVar(&o.limits.TotalStreams, "streams-in-all", o.limits.TotalStreams,
		"How many streams of changes may be open in all")
	f.Float32Var(&o.qps, "client-qps", o.qps, "How many requests a second are made to the API server")
	f.IntVar(&o.burst, "client-max-burst", o.burst, "How many requests may be made at once")

	f.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress,
		"The address that /metrics is served on, 0 to disable")
	f.StringVar(&o.healthProbeAddress, "health-probe-address", o.healthProbeAddress,
		"The address that /livez and /readyz are served on, 0 to disable")
	f.StringVar(&o.logLevel, "log-level", o.logLevel, "The least severe log lines shown: debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", o.logFormat, "The format of the logs: json or console")
}

// validate returns nil or faults: everything that is wrong.
func (o *catalogOptions) validate() error {
	var f faults
	for _, problem := range validation.IsDNS1123Subdomain(o.nodeName) {
		f.add(fmt.Sprintf("--broker-node=%s", o.nodeName), problem)
	}
	f.address("--address", o.address)
	if (o.certFile == "") != (o.keyFile == "") {
		f.add("only one of --tls-cert-file and --tls-key-file is given", "give both or none")
	}
	if o.plainHTTP {
		if o.certFile != "" {
			f.add("--plain-http together with --tls-cert-file", "leave one of them out")
		}
		if o.clientCA != "" {
			f.add("--plain-http together with --client-ca-file", "leave one of them out: client certificates need TLS")
		}
	}
	if o.historyInterval < time.Second {
		f.add(fmt.Sprintf("--history-interval=%s", o.historyInterval), "use at least 1s")
	}
	f.limits(
		limit{"--requests-per-second", o.limits.PerSecond},
		limit{"--requests-burst", float64(o.limits.Burst)},
		limit{"--streams-per-caller", float64(o.limits.Streams)},
		limit{"--streams-in-all", float64(o.limits.TotalStreams)},
		limit{"--client-qps", float64(o.qps)},
		limit{"--client-max-burst", float64(o.burst)},
	)
	if o.metricsAddress != "0" {
		f.address("--metrics-address", o.metricsAddress)
	}
	if o.healthProbeAddress != "0" {
		f.address("--health-probe-address", o.healthProbeAddress)
	}
	f.oneOf("--log-level", o.logLevel, "debug", "info", "warn", "error")
	f.oneOf("--log-format", o.logFormat, "json", "console")
	if len(f) > 0 {
		return f
	}
	return nil
}

// config is what the options say to the catalog; Log and Home are left to be set.
func (o *catalogOptions) config() catalog.Config {
	cfg := catalog.Config{
		QPS: o.qps, Burst: o.burst, Version: version, Node: o.nodeName, Address: o.address,
		TLS:    catalog.TLSConfig{Off: o.plainHTTP, CertFile: o.certFile, KeyFile: o.keyFile, ClientCAFile: o.clientCA},
		Access: catalog.AccessConfig{ReadAuth: o.readAuth, AnonymousToggle: o.anonymousToggle},
		Limits: o.limits, HistoryInterval: o.historyInterval,
	}
	if o.metricsAddress != "0" {
		cfg.MetricsAddress = o.metricsAddress
	}
	if o.healthProbeAddress != "0" {
		cfg.HealthAddress = o.healthProbeAddress
	}
	return cfg
}

func runCatalog(ctx context.Context, o *catalogOptions, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, err := setUpLogging(logs, o.logLevel, o.logFormat, flags)
	if err != nil {
		return err
	}
	cfg := o.config()
	cfg.Log = log
	if cfg.Home, err = connectionConfig(o.homeKubeconfig, "catalog"); err != nil {
		return fmt.Errorf("connecting to the broker's cluster (--home-kubeconfig, or run in a pod): %w", err)
	}
	log.Info("Starting the catalog", "version", version, "node", cfg.Node)
	if err := catalog.Run(ctx, cfg); err != nil {
		return err
	}
	log.Info("Stopped")
	return nil
}
