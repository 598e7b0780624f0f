package kubelet

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	tenantnamespace "github.com/liqotech/liqo/pkg/tenantNamespace"
	"github.com/liqotech/liqo/pkg/virtualKubelet/leaderelection"
	nodeprovider "github.com/liqotech/liqo/pkg/virtualKubelet/liqoNodeProvider"
	liqometrics "github.com/liqotech/liqo/pkg/virtualKubelet/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Run is the virtual kubelet. It returns nil once ctx has ended and everything has stopped; any other end is an error.
// Liqo's leader election panics when it loses its lease (leaderelection.InitAndRun): that ends the process, too.
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

	health := &process.Health{}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		group.Go(func() error {
			return httpserve.ServeOn(ctx, cfg.HealthAddress, "--health-probe-address", health.Handler())
		})
	}
	group.Go(func() error {
		health.Set(process.Connecting)
		return serve(ctx, &cfg, local, events, func() { health.Set(process.Serving) })
	})
	return group.Wait()
}

// serve connects, reflects, and serves the kubelet API, the metrics and the Node until ctx ends.
func serve(ctx context.Context, cfg *Config, local kubernetes.Interface, events record.EventBroadcaster, ready func()) error {
	// 1. The remote cluster, and the IPAM of this one.
	remote, err := connectRemote(ctx, cfg, local)
	if err != nil {
		return process.IfNotDone(ctx, err)
	}
	clients, err := connect.New(cfg.Home, remote)
	if err != nil {
		return err
	}
	addresses, closeAddresses, err := dialIPAM(cfg)
	if err != nil {
		return err
	}
	defer closeAddresses()

	// 2. The reflection, with the remote IPAM.
	group, ctx := errgroup.WithContext(ctx)
	var r *reflection
	var asked *ipam.Client
	var networks *network
	var answers remoteIPAM // Nil without a remote IPAM.
	if cfg.RemoteIPAM != nil {
		if asked, err = newRemoteIPAM(cfg, remote, func(ip string) { r.pods.refresh(ip) }); err != nil {
			return err
		}
		answers = asked
		watches, err := dynamic.NewForConfig(cfg.Home)
		if err != nil {
			return fmt.Errorf("home cluster: %w", err)
		}
		networks = &network{
			log: cfg.Log, client: watches, namespace: cfg.TenantNamespace, cluster: cfg.ForeignCluster.ClusterID,
			changed: func() { r.pods.refresh("") },
		}
	}
	if r, err = process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, "home cluster's API", func(context.Context) (*reflection, error) {
		return compose(cfg, clients, addresses, networks, answers, events)
	}); err != nil {
		return process.IfNotDone(ctx, err)
	}
	if asked != nil {
		group.Go(func() error { return networks.Run(ctx) })
		group.Go(func() error { return asked.Run(ctx) })
	}
	r.manager.Start(ctx)
	group.Go(func() error { return lead(ctx, cfg, r, events) })

	// 3. The kubelet API, the metrics and the Node.
	serveAPIs(ctx, group, cfg, clients, r, asked)
	group.Go(func() error { return keepNode(ctx, cfg, local, remote, ready) })
	return group.Wait()
}

// connectRemote waits for the Secret with the connection to the remote cluster, and reads it. Every client built from
// it has the limits of package untrusted.
func connectRemote(ctx context.Context, cfg *Config, local kubernetes.Interface) (*rest.Config, error) {
	identities := identitymanager.NewCertificateIdentityReader(local, cfg.HomeCluster, tenantnamespace.NewManager(local))
	what := fmt.Sprintf("remote kubeconfig, Secret %s/%s (--foreign-kubeconfig-secret-name)", cfg.TenantNamespace, cfg.KubeconfigSecretName)
	remote, err := process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, what, func(ctx context.Context) (*rest.Config, error) {
		secret, err := local.CoreV1().Secrets(cfg.TenantNamespace).Get(ctx, cfg.KubeconfigSecretName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		// Any proxy is allowed, as in Liqo's virtual kubelet.
		return untrusted.Config(secret, []string{untrusted.AnyProxy}, identities.GetConfigFromSecret)
	})
	if err != nil {
		return nil, err
	}
	remote.UserAgent = cfg.Home.UserAgent
	connect.RetryWatches(remote, cfg.Log) // Within package untrusted: its errors must not be retried.
	untrusted.Wrap(remote)
	connect.Limit(remote, cfg.RequestTimeout)
	return remote, nil
}

// newRemoteIPAM returns the client of the remote IPAM.
func newRemoteIPAM(cfg *Config, remote *rest.Config, changed func(ip string)) (*ipam.Client, error) {
	server := cfg.RemoteIPAM
	client := ipam.ClientConfig{
		Log: cfg.Log.WithName("remote-ipam"), Server: server.Server, ClusterID: cfg.HomeCluster.ClusterID, Changed: changed,
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

// lead runs in Liqo's leader election: one of the virtual kubelets of a tenant namespace reflects objects other than
// pods.
func lead(ctx context.Context, cfg *Config, r *reflection, events record.EventBroadcaster) error {
	return leaderelection.InitAndRun(ctx, leaderelection.Opts{
		Enabled: cfg.Lease.Enabled, PodName: cfg.PodName, TenantNamespace: cfg.TenantNamespace,
		LeaseDuration: cfg.Lease.Duration, RenewDeadline: cfg.Lease.RenewDeadline, RetryPeriod: cfg.Lease.RetryPeriod,
	}, rest.CopyConfig(cfg.Home), events, func() {
		if err := r.manager.Resync(); err != nil {
			cfg.Log.Error(err, "Cannot enqueue all objects")
			return
		}
		cfg.Log.Info("Elected to reflect all resources except pods")
	})
}

func serveAPIs(ctx context.Context, group *errgroup.Group, cfg *Config, clients connect.Clients, r *reflection, asked *ipam.Client) {
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
			Remedy:            kubeletapi.GrantCommand(cfg.TenantNamespace, cfg.Node.Name),
			Port:              cfg.API.Port,
			CertificateType:   cfg.API.CertificateType,
			CertDir:           cfg.API.CertDir,
			ClientCAFile:      cfg.API.ClientCAFile,
			AuthorizationMode: cfg.API.AuthorizationMode,
			Local:             local,
			Handler: knownProtocols(kubeletapi.NewHandler(log, r.pods,
				kubeletapi.RemoteScrape(clients.Remote, kubeletapi.MetricsV0, cfg.HomeCluster.ClusterID))),
		})
	})
	if cfg.MetricsAddress != "" {
		group.Go(func() error {
			registry, err := newMetrics(r, asked, cfg.UnknownFlags) //nolint:contextcheck // The list is one in memory.
			if err != nil {
				return err
			}
			return httpserve.ServeOn(ctx, cfg.MetricsAddress, "--metrics-address", process.MetricsHandler(registry))
		})
	}
}

// newMetrics registers the metrics of Liqo's virtual kubelet under the same names, and the additional ones of this
// virtual kubelet. asked may be nil.
func newMetrics(r *reflection, asked *ipam.Client, unknownFlags []string) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, collector := range []prometheus.Collector{
		liqometrics.ItemsCounter, liqometrics.ErrorsCounter,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		process.UnknownMetric(unknownFlags),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "liqo_broker_vk", Name: "pods", Help: "Pods that the virtual kubelet serves.",
		}, func() float64 {
			pods, err := r.pods.List(context.Background())
			if err != nil {
				return 0 // A cache never fails to list.
			}
			return float64(len(pods))
		}),
	} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	if asked != nil {
		if err := asked.RegisterMetrics(registry); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return registry, nil
}

// keepNode registers the Node and keeps its status and lease until ctx ends.
func keepNode(ctx context.Context, cfg *Config, local kubernetes.Interface, remote *rest.Config, ready func()) error {
	if !cfg.Node.Create {
		ready()
		return nil
	}
	source := nodeprovider.NewLiqoNodeProvider(&nodeprovider.InitConfig{
		HomeConfig:      cfg.Home,
		RemoteConfig:    remote,
		HomeClusterID:   cfg.HomeCluster.ClusterID,
		RemoteClusterID: cfg.ForeignCluster.ClusterID,
		Namespace:       cfg.TenantNamespace,

		NodeName:         cfg.Node.Name,
		InternalIP:       cfg.Node.IP,
		DaemonPort:       cfg.API.Port,
		Version:          process.ServerVersion(cfg.Log, local),
		ExtraLabels:      process.NodeLabels(cfg.Node.ExtraLabels),
		ExtraAnnotations: cfg.Node.ExtraAnnotations,

		InformerResyncPeriod: cfg.InformerResyncPeriod,
		PingDisabled:         cfg.Node.PingInterval == 0,
		CheckNetworkStatus:   cfg.Node.CheckNetwork,
	})
	startInformers := source.StartProvider(ctx)
	return process.RunNode(ctx, process.NodeConfig{
		Log: cfg.Log, Name: cfg.Node.Name, Local: local, LeaseDuration: cfg.Node.LeaseDuration,
		PingInterval: cfg.Node.PingInterval, PingTimeout: cfg.Node.PingTimeout,
	}, source, func() {
		// Only now: the informers' handlers patch the node.
		close(startInformers)
		ready()
	})
}
