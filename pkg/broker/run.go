package broker

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	tenantnamespace "github.com/liqotech/liqo/pkg/tenantNamespace"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/offer"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/reoffload"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// programs is how many compiled expressions are kept.
const programs = 1000

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
	mgr, err := ctrl.NewManager(home, managerOptions(&cfg, scheme))
	if err != nil {
		return fmt.Errorf("home cluster: %w", err)
	}
	b, err := newBroker(ctx, cfg, mgr)
	if err != nil {
		return err
	}
	if err := b.indexAddresses(ctx, mgr); err != nil {
		return err
	}
	if err := b.setUp(mgr); err != nil {
		return err
	}
	if err := b.setUpForConsumers(mgr); err != nil {
		return err
	}
	if cfg.HealthAddress != "" {
		if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
			return err
		}
		if err := mgr.AddReadyzCheck("cache", func(r *http.Request) error {
			probe, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(probe) {
				return fmt.Errorf("the caches are not filled yet")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.MetricsAddress != "" {
		group.Go(func() error { return b.serveMetrics(ctx) })
	}
	group.Go(func() error {
		if err := mgr.Start(ctx); err != nil {
			return fmt.Errorf("broker: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// managerOptions keep the caches small: of pods only those of the node, of EndpointSlices only reflected ones, of all objects no managed fields.
func managerOptions(cfg *Config, scheme *runtime.Scheme) ctrl.Options {
	return ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName)},
				// Those that consumers have sent here.
				&discoveryv1.EndpointSlice{}: {Label: forge.EndpointSliceLabels().AsSelector()},
			},
		},
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		LeaderElection:                true,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       cfg.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &cfg.Lease.Duration,
		RenewDeadline:                 &cfg.Lease.RenewDeadline,
		RetryPeriod:                   &cfg.Lease.RetryPeriod,
		// Ours are served on a registry of our own; controller-runtime's queues and latencies join them there.
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: ifEmpty(cfg.HealthAddress, "0"),
		LivenessEndpointName:   "/livez",
	}
}

func ifEmpty(value, instead string) string {
	if value == "" {
		return instead
	}
	return value
}

func newBroker(ctx context.Context, cfg Config, mgr manager.Manager) (*Broker, error) {
	kube, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	// The reader of identities knows the token refresh of EKS as well.
	identities := identitymanager.NewCertificateIdentityReader(ctx, mgr.GetClient(), kube, mgr.GetConfig(), "",
		tenantnamespace.NewManager(kube, mgr.GetScheme()))
	version, err := kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	b := &Broker{
		cfg: cfg, log: cfg.Log, client: mgr.GetClient(), live: mgr.GetAPIReader(), tracer: cfg.Tracer,
		events:      mgr.GetEventRecorderFor("liqo-broker"), //nolint:staticcheck // The new recorder has no pods' events yet.
		core:        newCore(&cfg),
		connections: newConnections(kube, identities, cfg.Times.RequestTimeout, cfg.Home.UserAgent),
		policies: &placement.Policies{Client: mgr.GetClient(), Programs: criteria.NewCache(programs), Defaults: placement.Rules{
			Failover: v1alpha1.FailoverMove, FailoverAfter: cfg.Times.FailoverAfter, PendingTimeout: cfg.Times.PendingTimeout,
		}},
		wake: make(chan struct{}, 1), goneChecks: newGoneChecks(),
	}
	b.measure()
	b.prober = newProber(kube, b.connections, cfg.Times, b.report)
	b.node = newBrokerNode(&b.cfg, kube, version.GitVersion)
	b.node.sum, b.node.settled = b.sum, b.settle
	b.node.hold = b.core.suspects
	return b, nil
}

// setUp registers what the leader does, which starts when the replica is elected and its caches are filled, and what
// every replica does: its certificate, and the remote IPAM, which only reads and which a Service spreads over them all.
func (b *Broker) setUp(mgr manager.Manager) error {
	kubelet, err := b.kubeletConfig()
	if err != nil {
		return err
	}
	if err := mgr.Add(everyReplica(kubelet.Certificate.Run)); err != nil {
		return err
	}
	if err := mgr.Add(everyReplica(func(ctx context.Context) error { return b.serveIPAM(ctx, kubelet.Certificate) })); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return b.lead(ctx, kubelet) })); err != nil {
		return err
	}
	if err := b.podController(mgr); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if err := b.providerController(mgr); err != nil {
		return fmt.Errorf("providers: %w", err)
	}
	if b.addresses {
		if err := b.endpointController(mgr); err != nil {
			return err
		}
	}
	return b.policyController(mgr)
}

// setUpForConsumers registers what the leader does for consumers besides their pods.
func (b *Broker) setUpForConsumers(mgr manager.Manager) error {
	if b.cfg.Reoffload != nil {
		if err := reoffload.SetUp(mgr, *b.cfg.Reoffload, b.namespaceMetrics); err != nil {
			return fmt.Errorf("namespaces of consumers: %w", err)
		}
	}
	if b.cfg.Offers != nil {
		if err := offer.SetUp(mgr, *b.cfg.Offers, b.offerMetrics); err != nil {
			return fmt.Errorf("offers: %w", err)
		}
	}
	return nil
}

// kubeletConfig is what the kubelet API is told, and the certificate that the remote IPAM serves with too.
func (b *Broker) kubeletConfig() (kubeletapi.Config, error) {
	pods := podAPI{broker: b}
	cfg := kubeletapi.Config{
		Log:             b.log.WithName("kubelet-api"),
		NodeName:        b.cfg.NodeName,
		NodeIP:          b.cfg.NodeIP,
		TenantNamespace: b.cfg.Namespace,
		Port:            b.cfg.Kubelet.Port,
		CertificateType: b.cfg.Kubelet.CertificateType,
		CertDir:         b.cfg.Kubelet.CertDir,

		ApproveCertificate: true,
		ClientCAFile:       b.cfg.Kubelet.ClientCAFile,
		AuthorizationMode:  b.cfg.Kubelet.AuthorizationMode,
		Local:              b.node.kube,
		Pods:               pods,
		Scrape:             pods.scrape,
	}
	if b.cfg.IPAM != nil {
		cfg.DNSNames = []string{ipam.ServiceName}
	}
	var err error
	if cfg.Certificate, err = kubeletapi.NewServingCertificate(cfg); err != nil {
		return cfg, fmt.Errorf("serving certificate: %w", err)
	}
	return cfg, nil
}

// everyReplica is what a replica does whether it leads or not. It implements manager.LeaderElectionRunnable.
type everyReplica func(ctx context.Context) error

// Start implements manager.Runnable.
func (run everyReplica) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// lead runs what is not a controller, until ctx ends.
func (b *Broker) lead(ctx context.Context, kubelet kubeletapi.Config) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.node.run(ctx) })
	group.Go(func() error { return b.wakeUp(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		b.prober.stopAll()
		return nil
	})
	group.Go(func() error { return kubeletapi.Run(ctx, kubelet) })
	return group.Wait()
}

// podController reconciles the pods of the node; the cache holds no others.
func (b *Broker) podController(mgr manager.Manager) error {
	pods := ctrl.NewControllerManagedBy(mgr).Named("pod").
		For(&corev1.Pod{}).
		WatchesRawSource(b.podQueue.source())
	var err error
	if b.addresses, err = mapsAddresses(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if b.addresses {
		pods = pods.Watches(&ipamv1alpha1.IP{}, &handler.EnqueueRequestForObject{}) // It is called like its pod.
	}
	return pods.
		WithOptions(controller.Options{
			MaxConcurrentReconciles: b.cfg.Workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute),
			SkipNameValidation:      ptr.To(true),
		}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return b.reconcilePod(ctx, r.NamespacedName)
		}))
}

// providerController reconciles provider clusters by id, whatever of theirs has changed.
func (b *Broker) providerController(mgr manager.Manager) error {
	by := func(id func(client.Object) string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if name := id(o); name != "" {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
			}
			return nil
		})
	}
	return ctrl.NewControllerManagedBy(mgr).Named("provider").
		For(&v1alpha1.ProviderCluster{}).
		Watches(&offloadingv1beta1.VirtualNode{}, by(func(o client.Object) string {
			return string(o.(*offloadingv1beta1.VirtualNode).Spec.ClusterID) //nolint:forcetypeassert // Watched is nothing else.
		})).
		Watches(&offloadingv1beta1.NamespaceMap{}, by(func(o client.Object) string { return o.GetLabels()[consts.RemoteClusterID] })).
		Watches(&liqov1beta1.ForeignCluster{}, by(func(o client.Object) string {
			return string(o.(*liqov1beta1.ForeignCluster).Spec.ClusterID) //nolint:forcetypeassert // Watched is nothing else.
		})).
		WatchesRawSource(b.providerQueue.source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return b.reconcileProvider(ctx, r.Name)
		}))
}

func (b *Broker) policyController(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("policy").
		For(&v1alpha1.PlacementPolicy{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return b.reconcilePolicy(ctx, r.Name)
		}))
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	return nil
}

// serveMetrics serves the broker's metrics, with those of controller-runtime (queues, requests).
func (b *Broker) serveMetrics(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	if err := b.registerMetrics(registry); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, crmetrics.Registry},
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	ln, err := httpserve.Listen(ctx, b.cfg.MetricsAddress, "--metrics-address")
	if err != nil {
		return err
	}
	return httpserve.Run(ctx, &http.Server{Handler: mux}, ln) //nolint:gosec // Run sets ReadHeaderTimeout.
}
