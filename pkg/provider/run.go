package provider

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// Run is the virtual kubelet. It returns nil once ctx has ended and everything has stopped, the leases given back; any
// other end is an error.
func Run(ctx context.Context, cfg Config) error {
	cfg.Home = rest.CopyConfig(cfg.Home)
	limitRequests(cfg.Home, cfg.RequestTimeout)
	local, err := kubernetes.NewForConfig(cfg.Home)
	if err != nil {
		return fmt.Errorf("home cluster: %w", err)
	}
	events := record.NewBroadcaster()
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: local.CoreV1().Events(corev1.NamespaceAll)})

	health := &health{}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		group.Go(func() error {
			return serveOn(ctx, cfg.HealthAddress, "--health-probe-address", health.handler())
		})
	}
	group.Go(func() error {
		health.set(standby)
		return runElected(ctx, &cfg, local, events, func(ctx context.Context) error {
			health.set(connecting)
			return lead(ctx, &cfg, local, events, func() { health.set(serving) })
		})
	})
	return group.Wait()
}

// lead is what the elected replica does, until ctx ends.
func lead(ctx context.Context, cfg *Config, local kubernetes.Interface, events record.EventBroadcaster, ready func()) error {
	// 1. The peering: how to reach the remote cluster, and what the node is.
	peering, err := readPeering(ctx, cfg, local)
	if err != nil {
		return ifNotDone(ctx, err)
	}
	keepRotated(ctx, cfg, peering.remote, local)

	group, ctx := errgroup.WithContext(ctx)

	// 2. The network configuration, without which no address is shown.
	watches, err := dynamic.NewForConfig(cfg.Home)
	if err != nil {
		return fmt.Errorf("home cluster: %w", err)
	}
	network := netconfig.NewWatcher(watches, netconfig.Options{
		Cluster: cfg.ForeignCluster, All: cfg.Addresses.Direct, Resync: cfg.InformerResyncPeriod, Log: cfg.Log,
	})
	clients, err := NewClients(cfg.Home, peering.remote)
	if err != nil {
		return err
	}

	var reflection *Reflection
	var asked *ipam.Client
	ways := Ways{Networks: network}
	if cfg.Addresses.RemoteIPAM != nil {
		asked, err = newRemoteIPAM(cfg, peering.remote, func(ip string) { reflection.RefreshAddress(ip) })
		if err != nil {
			return err
		}
		ways.Remote = asked
		group.Go(func() error {
			if err := waitFor(ctx, network.Synced(), cfg.StartupTimeout); err != nil {
				return nil // The network's own waiter says so.
			}
			return asked.Run(ctx)
		})
	}

	// 3. The reflection.
	reflection, err = eventually(ctx, cfg, "home cluster's API", func(context.Context) (*Reflection, error) {
		return Compose(cfg, clients, peering.virtualNode.Spec.OffloadingPatch, ways, events)
	})
	if err != nil {
		return ifNotDone(ctx, err)
	}
	group.Go(func() error { return network.Run(ctx, reflection.followNetwork(network)) })
	group.Go(func() error {
		if err := waitFor(ctx, network.Synced(), cfg.StartupTimeout); err != nil {
			return ifNotDone(ctx, fmt.Errorf("reading the ForeignClusters and network Configurations: %w", err))
		}
		reflection.Start(ctx)
		if cfg.Lease.ReflectionEnabled {
			group.Go(func() error { return runReflectionElection(ctx, cfg, events, reflection.Resync) })
		}

		// 4. What others ask of a node.
		serve(ctx, group, cfg, clients, reflection, asked)
		if cfg.Node.Create {
			return runNode(ctx, cfg, peering, local, ready)
		}
		ready()
		return nil
	})
	return group.Wait()
}

// newRemoteIPAM returns the client of the remote IPAM, who proves who this cluster is by the identity of the peering.
func newRemoteIPAM(cfg *Config, remote *rest.Config, changed func(ip string)) (*ipam.Client, error) {
	server := cfg.Addresses.RemoteIPAM
	client := ipam.ClientConfig{
		Log: cfg.Log.WithName("remote-ipam"), Server: server.Server, ClusterID: string(cfg.HomeCluster), Changed: changed,
		UserAgent: cfg.Home.UserAgent,
	}
	if !server.Insecure {
		proof, err := ipam.ClientTLS(remote, server.CAFile, server.ServerName)
		if err != nil {
			return nil, err
		}
		client.TLS = renewed(proof, remote)
	}
	return ipam.NewClient(client), nil
}

// renewed has a TLS configuration follow the client certificate of a connection whose Secret is watched
// (restcfg.UpdateCfgCertOnSecretChange, which puts the current one into every transport that it wraps).
func renewed(config *tls.Config, remote *rest.Config) *tls.Config {
	if remote.WrapTransport == nil {
		return config
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	remote.WrapTransport(transport)
	if current := transport.TLSClientConfig.GetClientCertificate; current != nil {
		config.GetClientCertificate, config.Certificates = current, nil
	}
	return config
}

// serve starts the kubelet API and the metrics; remote may be nil.
func serve(ctx context.Context, group *errgroup.Group, cfg *Config, clients Clients, reflection *Reflection, remote *ipam.Client) {
	group.Go(func() error {
		return kubeletapi.Run(ctx, kubeletapi.Config{
			Log:               cfg.Log.WithName("kubelet-api"),
			NodeName:          cfg.Node.Name,
			NodeIP:            cfg.Node.IP,
			TenantNamespace:   cfg.TenantNamespace,
			Port:              cfg.Kubelet.Port,
			CertificateType:   cfg.Kubelet.CertificateType,
			CertDir:           cfg.Kubelet.CertDir,
			ClientCAFile:      cfg.Kubelet.ClientCAFile,
			AuthorizationMode: cfg.Kubelet.AuthorizationMode,
			Local:             clients.Local,
			Pods:              reflection.Pods(),
			Scrape:            kubeletapi.RemoteScrape(clients.Remote, cfg.HomeCluster),
		})
	})
	if cfg.MetricsAddress != "" {
		group.Go(func() error {
			handler, err := reflection.metricsHandler(remote)
			if err != nil {
				return fmt.Errorf("metrics: %w", err)
			}
			return serveOn(ctx, cfg.MetricsAddress, "--metrics-address", handler)
		})
	}
}

func serveOn(ctx context.Context, address, flag string, handler http.Handler) error {
	ln, err := httpserve.Listen(ctx, address, flag)
	if err != nil {
		return ifNotDone(ctx, err)
	}
	return httpserve.Run(ctx, &http.Server{Handler: handler}, ln) //nolint:gosec // Run sets ReadHeaderTimeout.
}

// ifNotDone forgets an error that only says that ctx has ended.
func ifNotDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
