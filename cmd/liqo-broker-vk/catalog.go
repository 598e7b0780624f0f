package main

import (
	"context"
	"fmt"
	"io"
	"time"

	flagsutils "github.com/liqotech/liqo/pkg/utils/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// catalogOptions is the command line of the catalog.
type catalogOptions struct {
	serviceOptions

	address   string
	plainHTTP bool
	certFile  string
	keyFile   string
	clientCA  string

	readAuth, anonymousToggle bool

	historyInterval time.Duration

	limits caller.Limits
}

func newCatalogOptions() *catalogOptions {
	return &catalogOptions{
		// It runs beside the broker, in one network namespace.
		serviceOptions: newServiceOptions(":8082", ":8083", 50, 100),
		address:        ":8000", historyInterval: 30 * time.Second,
		limits: caller.Limits{PerSecond: 50, Burst: 100, Streams: 10, TotalStreams: 1000, Connections: 512},
	}
}

func newCatalogCommand(logs io.Writer) *cobra.Command {
	o := newCatalogOptions()
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "An HTTP API and a dashboard that show the federation and let consumers choose",
		Long: "catalog serves, over HTTPS, what the broker knows of the federation: its providers, where pods are, and\n" +
			"why. Consumers select the providers that they want, operators enable and disable them. Any number may run.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCatalog(cmd.Context(), o, cmd.Flags(), logs)
		},
	}
	o.install(cmd.Flags())
	return cmd
}

func (o *catalogOptions) install(f *pflag.FlagSet) {
	flagsutils.InitKlogFlags(f)
	o.serviceOptions.install(f)
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
	f.IntVar(&o.limits.Connections, "connections-per-address", o.limits.Connections,
		"How many connections each address may have open; a proxy, and whoever is behind it, is one address")
}

// validate returns nil or faults: everything that is wrong.
func (o *catalogOptions) validate() error {
	var f faults
	o.serviceOptions.validate(&f)
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
		limit{"--connections-per-address", float64(o.limits.Connections)},
	)
	if len(f) > 0 {
		return f
	}
	return nil
}

// config is what the options say to the catalog; Log and Home are left to be set.
func (o *catalogOptions) config() catalog.Config {
	return catalog.Config{
		QPS: o.qps, Burst: o.burst, Version: version, Node: o.nodeName, Address: o.address,
		TLS:    catalog.TLSConfig{Off: o.plainHTTP, CertFile: o.certFile, KeyFile: o.keyFile, ClientCAFile: o.clientCA},
		Access: catalog.AccessConfig{ReadAuth: o.readAuth, AnonymousToggle: o.anonymousToggle},
		Limits: o.limits, HistoryInterval: o.historyInterval,
		MetricsAddress: served(o.metricsAddress), HealthAddress: served(o.healthProbeAddress),
	}
}

func runCatalog(ctx context.Context, o *catalogOptions, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, home, err := o.begin("catalog", flags, logs)
	if err != nil {
		return err
	}
	cfg := o.config()
	cfg.Log, cfg.Home = log, home
	log.Info("Starting the catalog", "version", version, "node", cfg.Node)
	if err := catalog.Run(ctx, cfg); err != nil {
		return err
	}
	log.Info("Stopped")
	return nil
}
