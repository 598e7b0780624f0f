package provider

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/alive"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/election"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Run is the virtual kubelet. It returns nil once ctx has ended, everything has stopped and the leases are released;
// any other end is an error.
func Run(ctx context.Context, cfg Config) error {
	cfg.Home = rest.CopyConfig(cfg.Home)
	connect.Limit(cfg.Home, cfg.RequestTimeout)
	local, err := kubernetes.NewForConfig(cfg.Home)
	if err != nil {
		return fmt.Errorf("home cluster: %w", err)
	}
	events := record.NewBroadcaster()
	defer events.Shutdown()
	events.StartRecordingToSink(untrusted.EventSink{
		EventSink: &corev1client.EventSinkImpl{Interface: local.CoreV1().Events(corev1.NamespaceAll)},
	})

	health, pings := &process.Health{}, &ping{}
	elections := &election.Config{
		Log: cfg.Log, Identity: cfg.PodName, Namespace: cfg.TenantNamespace, Times: cfg.Lease.Times,
		Serving: func() bool {
			return health.Current() == process.Serving && (cfg.BrokerNode == "" || pings.reached(&cfg.Node))
		},
		Answered: pings.last,
	}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		group.Go(func() error {
			return httpserve.ServeOn(ctx, cfg.HealthAddress, "--health-probe-address", health.Handler())
		})
	}
	group.Go(func() error { return serveProbes(ctx, &cfg, local, health.Handler()) })
	group.Go(func() error {
		health.Set(process.Standby)
		return elections.Run(ctx, cfg.Node.Name, local, events, func(ctx context.Context) error {
			health.Set(process.Connecting)
			return lead(ctx, &cfg, local, elections, events, pings, func() { health.Set(process.Serving) })
		})
	})
	return group.Wait()
}

// lead runs the work of the elected replica until ctx ends.
func lead(ctx context.Context, cfg *Config, local kubernetes.Interface, elections *election.Config,
	events record.EventBroadcaster, pings *ping, ready func(),
) error {
	// 1. The peering: the connection to the remote cluster, and the description of the node.
	peering, err := readPeering(ctx, cfg, local)
	if err != nil {
		return process.IfNotDone(ctx, err)
	}

	group, ctx := errgroup.WithContext(ctx)

	// 2. The network configuration. No address is shown without it.
	watches, err := dynamic.NewForConfig(cfg.Home)
	if err != nil {
		return fmt.Errorf("home cluster: %w", err)
	}
	const review = "review of the permission to read Configurations"
	allowed, err := process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, review, func(ctx context.Context) (bool, error) {
		return mayReadConfigurations(ctx, local)
	})
	if err != nil {
		return process.IfNotDone(ctx, err)
	}
	if !allowed {
		cfg.Log.Info("No permission to read Configurations, translating addresses by --remote-pod-cidr and --remote-external-cidr",
			"flagsSet", cfg.Addresses.Table != nil)
	}
	network := netconfig.NewWatcher(watches, netconfig.Options{
		Cluster: cfg.ForeignCluster, All: cfg.Addresses.Direct, Table: cfg.Addresses.Table, NoConfigurations: !allowed,
		Resync: cfg.InformerResyncPeriod, Log: cfg.Log,
	})
	clients, err := connect.New(cfg.Home, peering.remote)
	if err != nil {
		return err
	}

	var remote *ipam.Client
	sources := podip.Sources{Networks: network}
	// The client of the remote IPAM is created before the pods that ask it, and passes its answers through the queue.
	answered := workqueue.NewTyped[string]()
	if cfg.Addresses.RemoteIPAM != nil {
		remote, err = newRemoteIPAM(cfg, peering.remote, answered.Add)
		if err != nil {
			return err
		}
		sources.Remote = remote
		group.Go(func() error {
			if err := process.WaitFor(ctx, network.Synced(), cfg.StartupTimeout); err != nil {
				return nil // The other function that waits returns the error.
			}
			return remote.Run(ctx)
		})
	}
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, remote)
	if err != nil {
		return err
	}
	if err := registry.Register(process.UnknownMetric(cfg.UnknownFlags)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}

	// 3. The reflection.
	compose := func(context.Context) (*Reflection, error) {
		return Compose(cfg, clients, peering.virtualNode.Spec.OffloadingPatch, sources, metrics, events)
	}
	reflection, err := process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, "home cluster's API", compose)
	if err != nil {
		return process.IfNotDone(ctx, err)
	}
	if err := registry.Register(PodsMetric(reflection.pods.count)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	group.Go(func() error { return followSecret(ctx, cfg, local, peering) })
	if cfg.BrokerNode != "" {
		group.Go(func() error { return pings.run(ctx, cfg, peering.remote) })
	}
	group.Go(func() error { return network.Run(ctx, reflection.followNetwork(network)) })
	group.Go(func() error { return reflection.refreshAddresses(ctx, answered) })
	group.Go(func() error {
		if err := process.WaitFor(ctx, network.Synced(), cfg.StartupTimeout); err != nil {
			return process.IfNotDone(ctx, fmt.Errorf("reading the ForeignClusters and network Configurations: %w", err))
		}
		reflection.Start(ctx)
		if cfg.Lease.ReflectionEnabled {
			group.Go(func() error { return elections.RunReflection(ctx, cfg.Home, events, reflection.manager.Resync) })
		}

		// 4. The kubelet API, the metrics and the Node.
		serve(ctx, group, cfg, clients, reflection, registry)
		if cfg.Node.Create {
			return runNode(ctx, cfg, peering, local, ready)
		}
		ready()
		if cfg.BrokerNode == "" {
			return nil
		}
		return keepAlive(ctx, cfg, func() bool { return elections.Serving() && reflection.pods.serves() })
	})
	return group.Wait()
}

// newRemoteIPAM returns the client of the remote IPAM, which authenticates with the identity of the peering.
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
		client.TLS = proof
	}
	return ipam.NewClient(client), nil
}

// keepAlive keeps the broker's Node alive while no broker does. Its requests use a separate rate limit.
func keepAlive(ctx context.Context, cfg *Config, serves func() bool) error {
	local, err := connect.Separate(cfg.Home)
	if err != nil {
		return err
	}
	return alive.Run(ctx, alive.Config{
		Log: cfg.Log, Kube: local, Node: cfg.BrokerNode, VirtualNode: cfg.VirtualNode, Serves: serves,
	})
}

func serve(ctx context.Context, group *errgroup.Group, cfg *Config, clients connect.Clients, reflection *Reflection,
	registry prometheus.Gatherer,
) {
	group.Go(func() error {
		log := cfg.Log.WithName("kubelet-api")
		local, err := connect.Separate(cfg.Home)
		if err != nil {
			return err
		}
		return kubeletapi.Run(ctx, kubeletapi.Config{
			Log:               log,
			NodeName:          cfg.Node.Name,
			NodeIP:            cfg.Node.IP,
			Remedy:            kubeletapi.GrantCommand(cfg.TenantNamespace, cfg.VirtualNode),
			Port:              cfg.Kubelet.Port,
			CertificateType:   cfg.Kubelet.CertificateType,
			CertDir:           cfg.Kubelet.CertDir,
			ClientCAFile:      cfg.Kubelet.ClientCAFile,
			AuthorizationMode: cfg.Kubelet.AuthorizationMode,
			Local:             local,
			Handler: kubeletapi.NewHandler(log, reflection.handler(),
				kubeletapi.RemoteScrape(clients.Remote, kubeletapi.MetricsV1, string(cfg.HomeCluster))),
		})
	})
	if cfg.MetricsAddress != "" {
		group.Go(func() error {
			return httpserve.ServeOn(ctx, cfg.MetricsAddress, "--metrics-address", process.MetricsHandler(registry))
		})
	}
}
