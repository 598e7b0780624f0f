package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	tenantnamespace "github.com/liqotech/liqo/pkg/tenantNamespace"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/accounting"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/claim"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/grants"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/lease"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/metadatasync"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/network"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/node"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/policies"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/providers"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/restore"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/volumes"
	"github.com/capacitorset/liqo-broker-vk/pkg/cached"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/isolation"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi/proxy"
	"github.com/capacitorset/liqo-broker-vk/pkg/offloading"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// programs is how many bytes of compiled expressions are kept: some hundreds of them.
const programs = 32 << 20

// leaseName is the lease by which the replicas of the broker elect a leader.
const leaseName = "liqo-broker"

// Run is the broker. It returns nil once ctx has ended and everything has stopped, the lease given back; any other end
// is an error, losing the lease included.
func Run(ctx context.Context, cfg Config) error {
	scheme, err := apischeme.New()
	if err != nil {
		return err
	}
	home := rest.CopyConfig(cfg.Home)
	home.QPS, home.Burst = cfg.QPS, cfg.Burst
	lockName := types.NamespacedName{Namespace: cfg.Namespace, Name: leaseName}
	lock, err := lease.New(home, lockName, cfg.Lease.RenewDeadline, clock.RealClock{})
	if err != nil {
		return err
	}
	home.Wrap(lock.Wrap)
	options := managerOptions(&cfg, scheme)
	options.LeaderElectionResourceLockInterface = lock
	mgr, err := ctrl.NewManager(home, options)
	if err != nil {
		return fmt.Errorf("home cluster: %w", err)
	}
	lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(lock.Identity()) //nolint:staticcheck // The lock takes this kind only.
	// The reader of identities refreshes tokens of EKS, too.
	kube, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	b, err := New(cfg, mgr, kube, identitymanager.NewCertificateIdentityReader(ctx, mgr.GetClient(), kube, mgr.GetConfig(), "",
		tenantnamespace.NewManager(kube, mgr.GetScheme())))
	if err != nil {
		return err
	}
	if err := b.SetUpControllers(ctx, mgr); err != nil {
		return err
	}
	if err := b.setUpServers(ctx, mgr); err != nil {
		return err
	}
	sole := &claim.Claim{Log: cfg.Log, Kube: kube, Namespace: cfg.Namespace, Node: cfg.NodeName}
	if err := mgr.Add(manager.RunnableFunc(sole.Run)); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.MetricsAddress != "" {
		group.Go(func() error { return serveMetrics(ctx, cfg.MetricsAddress, b.registry) })
	}
	if cfg.HealthAddress != "" {
		group.Go(func() error { return serveHealth(ctx, cfg.HealthAddress, mgr.GetCache()) })
	}
	group.Go(func() error { return lock.Run(ctx) })
	group.Go(func() error {
		// Before this replica may lead: the writes of a second broker would harm the first.
		if err := sole.Acquire(ctx); err != nil {
			return err
		}
		if err := mgr.Start(ctx); err != nil {
			return fmt.Errorf("broker: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// managerOptions keeps the caches small: only the pods of the node, only the EndpointSlices that consumers have
// reflected here, no managed fields, and of tenants' objects only the fields that are read.
func managerOptions(cfg *Config, scheme *runtime.Scheme) ctrl.Options {
	return ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {
					Field: fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName), Transform: cached.Pod,
				},
				&corev1.Namespace{}:                        {Transform: cached.Metadata},
				&authv1beta1.ResourceSlice{}:               {Transform: cached.Metadata},
				&authv1beta1.Tenant{}:                      {Transform: cached.Metadata},
				&offloadingv1beta1.NamespaceMap{}:          {Transform: cached.Metadata},
				&offloadingv1beta1.ShadowPod{}:             {Transform: cached.Keys},
				&corev1.PersistentVolumeClaim{}:            {Transform: cached.Metadata},
				&corev1.PersistentVolume{}:                 cached.Volumes(),
				&discoveryv1.EndpointSlice{}:               {Label: forge.EndpointSliceLabels().AsSelector()},
				&networkingv1beta1.FirewallConfiguration{}: {Label: isolation.ManagedBy().AsSelector()},
			},
		},
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		LeaderElection:                true,
		LeaderElectionID:              leaseName, // In the metrics; Run sets the lock.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &cfg.Lease.Duration,
		RenewDeadline:                 &cfg.Lease.RenewDeadline,
		RetryPeriod:                   &cfg.Lease.RetryPeriod,
		// Ours are served on a registry of our own; controller-runtime's queues and latencies join them there.
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", // The broker serves the probes itself, with connection limits.
	}
}

// Broker is all parts of the broker.
type Broker struct {
	cfg    Config
	kube   kubernetes.Interface
	client client.Client
	// guard is nil if it is not required.
	guard   *admission.Guard
	metrics *Metrics
	// registry has the metrics.
	registry *prometheus.Registry

	grants    *grants.Controller
	node      *node.Node
	providers *providers.Controller
	cleaner   *termination.Cleaner
	checker   *termination.Checker
	pods      *pods.Controller
	policies  *policies.Controller
	// endpoints is nil if Liqo's networking module is not installed, and isolation does nothing then.
	endpoints *network.Endpoints
	isolation *isolation.Controller
	volumes   *volumes.Controller
	// ledger is nil if there is none.
	ledger  *accounting.Accountant
	requeue *requeue.Pods
	// reached are the providers behind the kubelet API.
	reached kubeletProviders
}

// New makes all parts, but starts none. Kube is for the manager's cluster. The identities are used to ask the providers.
func New(cfg Config, mgr manager.Manager, kube kubernetes.Interface, identities identitymanager.IdentityReader) (*Broker, error) {
	version, err := kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	// 1. The state, and the connections to the providers.
	home, clk := mgr.GetClient(), clock.RealClock{}
	known := newState(&cfg, clk)
	connections := remote.NewConnections(kube, identities, cfg.Home.UserAgent, cfg.ProviderProxies...)
	restorer := restore.New(mgr.GetAPIReader(), home, cfg.NodeName, known, clk)
	consumers := &requeue.Consumers{}
	podQueue, providerQueue, nodeChanged := &requeue.Queue{}, &requeue.Queue{}, node.NewSignal()
	again := requeue.NewPods(podQueue, home, known, cfg.Log)
	var required *admission.Guard
	if cfg.RequireGuard {
		required, err = admission.New(kube, func(ctx context.Context) {
			again.All(ctx)
			nodeChanged.Send()
		})
		if err != nil {
			return nil, fmt.Errorf("guard: %w", err)
		}
	}

	// 2. The node, and the providers behind it.
	brokerNode := node.New(node.Config{
		Log: cfg.Log, Client: home, Kube: kube, State: known, Guard: required, Namespace: cfg.Namespace,
		Name: cfg.NodeName, IP: cfg.NodeIP, Port: cfg.Kubelet.Port,
		Version: version.GitVersion, OwnerClusterRole: cfg.OwnerClusterRole,
		LeaseDuration: cfg.Lease.NodeDuration, ProbeTimeout: cfg.Times.ProbeTimeout,
		Restored: func() bool { return !restorer.LeadsSince().IsZero() }, Changed: nodeChanged,
	})
	gone := &termination.Gone{Log: cfg.Log, Clock: clk, Client: home, Connections: connections}
	checker := termination.NewChecker(termination.CheckerConfig{
		Log: cfg.Log, Connections: connections, Queue: podQueue, Timeout: cfg.Times.RequestTimeout, Connect: gone.Connect,
	})
	cleaner := termination.NewCleaner(termination.CleanerConfig{
		Log: cfg.Log, Client: home, Live: mgr.GetAPIReader(), State: known, Connections: connections, Providers: providerQueue,
		Selector: cfg.ProviderSelector, Interval: cfg.Times.ProbeInterval, RequestTimeout: cfg.Times.RequestTimeout,
	})
	providerController := providers.New(providers.Config{
		Log: cfg.Log, Clock: clk, Client: home, Home: kube, State: known, Connections: connections,
		Restore: restorer.Restore, Cleaner: cleaner, Queue: providerQueue, NodeName: cfg.NodeName, Selector: cfg.ProviderSelector,
		Changed: func(ctx context.Context, id string) {
			again.OfProvider(ctx, id)
			again.Unassigned()
			nodeChanged.Send()
		},
		ProbeInterval: cfg.Times.ProbeInterval, ProbeTimeout: cfg.Times.ProbeTimeout,
		StatusInterval: cfg.Times.StatusInterval,
	})
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, known, required, podQueue, providerController)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}

	// 3. The pods, their policies and addresses.
	rules := &placement.Policies{
		Client: home, Live: mgr.GetAPIReader(), Programs: cel.NewCache(programs), Compiling: placement.NewCompiling(clk),
		Defaults: placement.Rules{
			Failover: v1alpha1.FailoverMove, FailoverAfter: cfg.Times.FailoverAfter, PendingTimeout: cfg.Times.PendingTimeout,
		},
	}
	mapsAddresses, err := network.ModuleInstalled(mgr.GetRESTMapper())
	if err != nil {
		return nil, err
	}
	var endpoints *network.Endpoints
	if mapsAddresses {
		endpoints = network.NewEndpoints(home, cfg.Log)
	}
	accountant, overBudget, err := newAccountant(&cfg, mgr, registry, known)
	if err != nil {
		return nil, err
	}
	grantController := grants.New(home, known, again, consumers)
	podController := pods.New(pods.Config{
		Log: cfg.Log, Clock: clk, Client: home, Live: mgr.GetAPIReader(), Tracer: cfg.Tracer,
		Events:  untrusted.Recorder{EventRecorder: mgr.GetEventRecorderFor("liqo-broker")}, //nolint:staticcheck // The new recorder has no pods' events yet.
		Metrics: metrics.pods, Guard: required, State: known, Restorer: restorer, Policies: rules,
		Grants: grantController, OverBudget: overBudget, Checker: checker, MapsAddresses: mapsAddresses,
		Sibling: providerController.Sibling, RemoteNamespace: gone.RemoteNamespace,
		Consumers: consumers, Queue: podQueue, Requeue: again, Providers: providerQueue,
		RefusalMemory: cfg.Times.RefusalMemory, ProbeInterval: cfg.Times.ProbeInterval, Workers: cfg.Workers,
	})

	rules.Nowhere = podController.Nowhere

	return &Broker{
		cfg: cfg, kube: kube, client: home, guard: required, metrics: metrics, registry: registry,
		grants: grantController, node: brokerNode, providers: providerController, cleaner: cleaner, checker: checker, pods: podController,
		policies:  policies.New(home, rules, again, clk, metrics.policies),
		endpoints: endpoints, requeue: again, reached: kubeletProviders{reader: home, state: known, connections: connections},
		ledger: accountant,
		volumes: volumes.New(volumes.Config{
			Log: cfg.Log.WithName("volumes"), Client: home, NodeName: cfg.NodeName,
			Events: untrusted.Recorder{EventRecorder: mgr.GetEventRecorderFor("liqo-broker")}, //nolint:staticcheck // As the pods' events.
		}),
		isolation: isolation.New(isolation.Config{
			Log: cfg.Log.WithName("isolation"), Client: home, Enabled: cfg.IsolateConsumers, NodeName: cfg.NodeName, Clock: clk,
			Metrics: metrics.isolation,
		}),
	}, nil
}

// newState returns the state of the broker, which is empty.
func newState(cfg *Config, clk clock.PassiveClock) *state.Federation {
	times := &cfg.Times
	of := state.Config{
		Clock: clk, MovesAtOnce: cfg.MovesAtOnce, ReserveAfter: times.ReserveAfter,
		SuspicionWindow: times.SuspicionWindow, SuspicionLimit: times.SuspicionLimit, ProbeInterval: times.ProbeInterval,
	}
	if cfg.Offers != nil {
		of.ReclaimAfter = cfg.Offers.ReclaimAfter
	}
	return state.New(of)
}

// newAccountant returns the writer of the ledger, and its answer to whether a consumer has used its budget; nil without a
// ledger.
func newAccountant(cfg *Config, mgr manager.Manager, registry *prometheus.Registry, known *state.Federation,
) (a *accounting.Accountant, overBudget func(ctx context.Context, consumer string) string, err error) {
	if cfg.Ledger == nil {
		return nil, nil, nil
	}
	metrics, err := accounting.NewMetrics(registry)
	if err != nil {
		return nil, nil, fmt.Errorf("metrics: %w", err)
	}
	a = accounting.New(accounting.Config{
		Log: cfg.Log.WithName("ledger"), Clock: clock.RealClock{}, Pods: mgr.GetCache(), Client: mgr.GetClient(),
		Prices: known.Prices, Metrics: metrics, Settings: *cfg.Ledger,
		Events: untrusted.Recorder{EventRecorder: mgr.GetEventRecorderFor("liqo-broker")}, //nolint:staticcheck // As the pods' events.
	})
	return a, a.OverBudget, nil
}

// Node is the broker's Node; test/histories plays virtual-kubelet's node controller with it.
func (b *Broker) Node() *node.Node { return b.node }

// SetUpControllers registers the controllers that assign and move pods, and probe providers. They start when the
// replica is elected and its caches are filled.
func (b *Broker) SetUpControllers(ctx context.Context, mgr manager.Manager) error {
	if err := pods.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(b.requeue.Run)); err != nil {
		return err
	}
	removals := metadatasync.New(metadatasync.Config{
		Client: b.client, Live: mgr.GetAPIReader(),
		Writer: &podpatch.Writer{Client: b.client, Clock: clock.RealClock{}, Metrics: b.metrics.pods.Writes()},
	})
	controllers := []interface{ SetUp(manager.Manager) error }{
		b.pods, b.grants, removals, b.checker, b.providers, b.cleaner,
		b.policies, b.volumes,
	}
	if b.endpoints != nil {
		controllers = append(controllers, b.endpoints, b.isolation)
	}
	for _, c := range controllers {
		if err := c.SetUp(mgr); err != nil {
			return err
		}
	}
	if b.ledger != nil {
		return mgr.Add(manager.RunnableFunc(b.ledger.Run))
	}
	return nil
}

// setUpServers registers the Node with its kubelet API, the leader's services for consumers, and the services of every
// replica: its certificate, and the remote IPAM, which only reads and which a Service spreads over them all.
func (b *Broker) setUpServers(ctx context.Context, mgr manager.Manager) error {
	local, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	kubelet, err := kubeletConfig(&b.cfg, local, b.reached)
	if err != nil {
		return err
	}
	runs := []manager.Runnable{
		everyReplica(kubelet.Certificate.Run), manager.RunnableFunc(b.node.Run),
		manager.RunnableFunc(func(ctx context.Context) error { return kubeletapi.Run(ctx, kubelet) }),
	}
	if b.cfg.IPAM != nil {
		if err := network.PrepareCache(ctx, mgr.GetCache()); err != nil {
			return err
		}
		ipam := network.RemoteIPAM{
			Config: *b.cfg.IPAM, Log: b.cfg.Log.WithName("ipam"), Reader: b.client, Kube: b.kube,
			ClientCAFile: b.cfg.Kubelet.ClientCAFile, Certificate: kubelet.Certificate.Get, Metrics: b.metrics.ipam,
		}
		runs = append(runs, everyReplica(ipam.Run))
	}
	if b.guard != nil {
		runs = append(runs, everyReplica(b.guard.Run))
	}
	for _, run := range runs {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	return b.setUpForConsumers(mgr)
}

// setUpForConsumers registers the leader's services for consumers besides their pods.
func (b *Broker) setUpForConsumers(mgr manager.Manager) error {
	if b.cfg.Offloading != nil {
		if err := offloading.SetUp(mgr, *b.cfg.Offloading, b.metrics.namespaces); err != nil {
			return fmt.Errorf("namespaces of consumers: %w", err)
		}
	}
	if b.cfg.Offers != nil {
		offers := *b.cfg.Offers
		offers.Guard, offers.Providers, offers.Reclaim = b.guard, b.cfg.ProviderSelector, b.pods.State.SetReclaimed
		if err := aggregator.SetUp(mgr, offers, b.metrics.offers); err != nil {
			return fmt.Errorf("offers: %w", err)
		}
	}
	return nil
}

// serveHealth serves the probes: a replica is ready when its caches are filled, also one that does not lead.
func serveHealth(ctx context.Context, address string, caches cache.Cache) error {
	return httpserve.ServeOn(ctx, address, "--health-probe-address", httpserve.HealthHandler(func(ctx context.Context) (string, error) {
		probe, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if !caches.WaitForCacheSync(probe) {
			return "", errors.New("the caches are not synced yet")
		}
		return "ok", nil
	}))
}

// kubeletConfig returns the configuration of the kubelet API, with the certificate that the remote IPAM serves with,
// too.
func kubeletConfig(broker *Config, local kubernetes.Interface, to kubeletProviders) (kubeletapi.Config, error) {
	log := broker.Log.WithName("kubelet-api")
	cfg := kubeletapi.Config{
		Log:             log,
		NodeName:        broker.NodeName,
		NodeIP:          broker.NodeIP,
		Remedy:          "kubectl apply -f deploy/broker.yaml",
		Port:            broker.Kubelet.Port,
		CertificateType: broker.Kubelet.CertificateType,
		CertDir:         broker.Kubelet.CertDir,

		ApproveCertificate: true,
		ClientCAFile:       broker.Kubelet.ClientCAFile,
		AuthorizationMode:  broker.Kubelet.AuthorizationMode,
		Local:              local,
		Handler: proxy.NewHandler(proxy.Config{
			Log: log, NodeName: broker.NodeName, Reader: to.reader, Providers: to,
		}),
	}
	if broker.IPAM != nil {
		cfg.DNSNames = []string{ipam.ServiceName}
	}
	var err error
	if cfg.Certificate, err = kubeletapi.NewServingCertificate(cfg); err != nil {
		return cfg, fmt.Errorf("serving certificate: %w", err)
	}
	return cfg, nil
}

// everyReplica runs whether the replica leads or not. It implements manager.LeaderElectionRunnable.
type everyReplica func(ctx context.Context) error

func (run everyReplica) Start(ctx context.Context) error { return run(ctx) }

func (everyReplica) NeedLeaderElection() bool { return false }
