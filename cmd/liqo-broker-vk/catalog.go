package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/server"
)

// catalogOptions are the flags of the catalog.
type catalogOptions struct {
	flags.Service

	address   string
	plainHTTP bool
	public    bool
	certFile  string
	keyFile   string
	tlsSecret string
	namespace string
	clientCA  string

	readAuth, anonymousToggle bool

	historyInterval time.Duration

	limits caller.Limits

	// liqoV0 is detected at start.
	liqoV0 bool
}

func newCatalogOptions() *catalogOptions {
	return &catalogOptions{
		// The catalog may share the network namespace of the broker, so the ports differ.
		Service: flags.NewService(":8082", ":8083", 50, 100),
		address: ":8000", public: true, namespace: os.Getenv("POD_NAMESPACE"), historyInterval: 30 * time.Second,
		limits: caller.Limits{PerSecond: 50, Burst: 100, Streams: 10, TotalStreams: 1000, Connections: 512},
	}
}

func newCatalogCommand(logs io.Writer, built build.Info) *cobra.Command {
	o := newCatalogOptions()
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "Run the catalog: an HTTP API and a dashboard of the federation, where consumers select providers",
		Long: "catalog serves an HTTP API and a dashboard: the providers of the federation, where pods are assigned, and why.\n" +
			"Consumers select providers; operators enable and disable them. Several replicas may run at once.",
		Example: `  # In a pod of the broker's cluster, with a self-signed certificate
  liqo-broker-vk catalog

  # Behind a proxy with TLS, outside of the cluster
  liqo-broker-vk catalog --plain-http --address=127.0.0.1:8000 --home-kubeconfig=broker.yaml`,
	}
	return newServiceCommand(cmd, o, logs, built)
}

func (o *catalogOptions) common() *flags.Service { return &o.Service }

func (o *catalogOptions) install(f *pflag.FlagSet) {
	o.Install(f)
	f.StringVar(&o.address, "address", o.address, "The address that the API and the dashboard are served on")
	f.BoolVar(&o.plainHTTP, "plain-http", o.plainHTTP,
		"Serve HTTP without TLS and without client certificates, for use behind a proxy with TLS")
	f.BoolVar(&o.public, "public-http", o.public,
		"Also serve, over plain HTTP on the same port, the data that callers without credentials may read")
	f.StringVar(&o.certFile, "tls-cert-file", o.certFile,
		"The certificate of the server, reloaded when it changes; by default a self-signed one")
	f.StringVar(&o.keyFile, "tls-key-file", o.keyFile, "The key of the certificate of the server")
	f.StringVar(&o.tlsSecret, "tls-secret", o.tlsSecret,
		"The Secret with the self-signed certificate that all replicas share without --tls-cert-file; if empty, each creates one at start")
	f.StringVar(&o.namespace, "namespace", o.namespace,
		"The namespace of this pod, where the Secret of --tls-secret is (environment POD_NAMESPACE)")
	f.StringVar(&o.clientCA, "client-ca-file", o.clientCA,
		"The CA of the client certificates accepted; by default the CA that the API server publishes")

	f.BoolVar(&o.readAuth, "read-auth", o.readAuth,
		"Show the providers only to callers that may list providerclusters or act for a consumer")
	f.BoolVar(&o.anonymousToggle, "anonymous-toggle", o.anonymousToggle,
		"Let callers without credentials enable and disable providers by /api/toggle")

	f.DurationVar(&o.historyInterval, "history-interval", o.historyInterval,
		"How often a sample for the charts is taken; they show the last 240 samples")

	f.Float64Var(&o.limits.PerSecond, "requests-per-second", o.limits.PerSecond,
		"The limit of requests per second of each caller; callers without credentials are counted by address")
	f.IntVar(&o.limits.Burst, "requests-burst", o.limits.Burst, "The burst limit of requests of each caller")
	f.IntVar(&o.limits.Streams, "streams-per-caller", o.limits.Streams,
		"The limit of open streams of changes of each caller")
	f.IntVar(&o.limits.TotalStreams, "streams-in-all", o.limits.TotalStreams,
		"The limit of open streams of changes of all callers")
	f.IntVar(&o.limits.Connections, "connections-per-address", o.limits.Connections,
		"The limit of open connections of each address; all clients behind a proxy are one address")
}

// validate returns all invalid options as one error.
func (o *catalogOptions) validate() error {
	var f flags.Faults
	o.Validate(&f)
	f.Address("--address", o.address)
	f.Pair("--tls-cert-file", o.certFile, "--tls-key-file", o.keyFile)
	f.Exclusive("--plain-http", o.plainHTTP, "--tls-cert-file", o.certFile != "")
	if o.tlsSecret != "" {
		f.Require(o.namespace, "--namespace", "give the namespace of this pod")
	}
	f.Exclusive("--plain-http", o.plainHTTP, "--client-ca-file", o.clientCA != "")
	f.AtLeastASecond("--history-interval", o.historyInterval)
	f.Limit("--requests-per-second", o.limits.PerSecond)
	f.Limit("--requests-burst", float64(o.limits.Burst))
	f.Limit("--streams-per-caller", float64(o.limits.Streams))
	f.Limit("--streams-in-all", float64(o.limits.TotalStreams))
	f.Limit("--connections-per-address", float64(o.limits.Connections))
	return f.Err()
}

// catalogService is the name of the Service in deploy/catalog.yaml, with which pods reach the catalog.
const catalogService = "liqo-broker-catalog"

// config returns the catalog's Config without Log, Home and Version.
func (o *catalogOptions) config() catalog.Config {
	cfg := catalog.Config{
		LiqoV0: o.liqoV0,
		QPS:    o.QPS, Burst: o.Burst, Node: o.NodeName, Address: o.address,
		TLS:    catalog.TLSConfig{Off: o.plainHTTP, Public: o.public, CertFile: o.certFile, KeyFile: o.keyFile, ClientCAFile: o.clientCA},
		Access: server.Access{ReadAuth: o.readAuth, AnonymousToggle: o.anonymousToggle},
		Limits: o.limits, HistoryInterval: o.historyInterval,
		MetricsAddress: flags.Served(o.MetricsAddress), HealthAddress: flags.Served(o.HealthProbeAddress),
	}
	if o.tlsSecret != "" {
		inCluster := catalogService + "." + o.namespace + ".svc"
		cfg.TLS.Secret = types.NamespacedName{Namespace: o.namespace, Name: o.tlsSecret}
		cfg.TLS.Names = []string{inCluster, catalogService, catalogService + "." + o.namespace, inCluster + ".cluster.local"}
	}
	return cfg
}

// needsLiqo accepts Liqo v0.x too.
func (o *catalogOptions) needsLiqo(missing error) error {
	if errors.As(missing, new(*liqoV0Error)) {
		o.liqoV0 = true
		return nil
	}
	return missing
}

func (o *catalogOptions) run(ctx context.Context, log logr.Logger, home *rest.Config, built build.Info) error {
	cfg := o.config()
	cfg.Log, cfg.Home, cfg.Version = log, home, built.Version
	return catalog.Run(ctx, cfg)
}
