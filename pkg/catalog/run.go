package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/access"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/dashboard"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// remedy is what lets the catalog ask who calls.
const remedy = "kubectl create clusterrolebinding liqo-broker-vk-catalog-auth --clusterrole=system:auth-delegator " +
	"--serviceaccount=<namespace>:<service account of the catalog>"

// errStopped says that something ended that was to run as long as the catalog.
var errStopped = errors.New("a part of the catalog ended by itself")

// Run is the catalog. It returns nil once ctx has ended and everything has stopped; any other end is an error.
func Run(ctx context.Context, cfg Config) error {
	c, err := newCatalog(ctx, cfg)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range c.tasks {
		group.Go(func() error {
			if err := run(ctx); err != nil {
				return err
			}
			if ctx.Err() == nil {
				return errStopped
			}
			return nil
		})
	}
	return group.Wait()
}

// catalog is what runs.
type catalog struct {
	cfg   Config
	log   logr.Logger
	cache cache.Cache
	view  *federation.View
	kube  kubernetes.Interface
	// clientCA is that of client certificates; nil where there is no TLS.
	clientCA access.ClientCA
	server   *server
	// tasks run until ctx ends.
	tasks []func(ctx context.Context) error
}

func newCatalog(ctx context.Context, cfg Config) (*catalog, error) {
	c := &catalog{cfg: cfg, log: cfg.Log, server: &server{
		log: cfg.Log, version: cfg.Version, node: cfg.Node, access: cfg.Access, clock: clock.RealClock{},
		origins: http.NewCrossOriginProtection(), metrics: newMetrics(),
	}}
	if err := c.connect(ctx); err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	certificates, err := c.clientCertificates()
	if err != nil {
		return nil, err
	}
	s := c.server
	s.allowances = caller.NewAllowances(cfg.Limits, s.clock)
	s.identifier = caller.NewIdentifier(access.NewTokenReviewer(c.kube, remedy), certificates, s.allowances, s.clock)
	s.rights = &caller.Rights{Authorizer: access.NewLimitedReviewer(c.kube, remedy, s.allowances.SpendReview), Tenants: c.view}
	if err := c.serve(ctx); err != nil {
		return nil, err
	}
	return c, c.serveOperators(ctx)
}

// connect makes the clients, and the caches that everything is read from.
func (c *catalog) connect(ctx context.Context) error {
	scheme, err := apischeme.New()
	if err != nil {
		return err
	}
	home := rest.CopyConfig(c.cfg.Home)
	home.QPS, home.Burst = c.cfg.QPS, c.cfg.Burst
	options := federation.CacheOptions(c.cfg.Node)
	options.Scheme = scheme
	if c.cache, err = cache.New(home, options); err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(home); err != nil {
		return err
	}
	if c.server.live, err = client.New(home, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	c.view = federation.New(c.cache, federation.Config{Node: c.cfg.Node, SampleEvery: c.cfg.HistoryInterval})
	s := c.server
	beliefs := explain.NewBeliefs(c.cfg.Node)
	s.view, s.explain = c.view, explain.NewExplainer(c.cache, beliefs, s.clock.Now)
	s.subscribe = func(scope federation.Scope, consumer string) changes { return c.view.Subscribe(scope, consumer) }
	s.synced = func() bool { return c.view.Synced() && beliefs.Synced() }
	c.tasks = append(c.tasks, c.cache.Start, c.view.Run, func(ctx context.Context) error { return beliefs.Run(ctx, c.cache) })
	return nil
}

// clientCertificates is nil where there is no TLS.
func (c *catalog) clientCertificates() (authenticator.Request, error) {
	if c.cfg.TLS.Off {
		return nil, nil //nolint:nilnil // None is an answer.
	}
	ca, err := access.NewClientCA(c.cfg.TLS.ClientCAFile, c.kube)
	if err != nil {
		return nil, err
	}
	c.clientCA = ca
	c.tasks = append(c.tasks, func(ctx context.Context) error {
		ca.Run(ctx, 1)
		return nil
	})
	return access.NewCertificateAuthenticator(ca), nil
}

// serve listens for the callers.
func (c *catalog) serve(ctx context.Context) error {
	handler, err := c.server.handler(dashboard.Handler())
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:     handler,
		ReadTimeout: readTimeout, ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: requestsPerConnection},
		ErrorLog:       slog.NewLogLogger(logr.ToSlogHandler(c.log.V(1)), slog.LevelInfo),
	}
	scheme := "http"
	if !c.cfg.TLS.Off {
		certificate, err := newServing(&c.cfg.TLS)
		if err != nil {
			return err
		}
		c.tasks = append(c.tasks, certificate.run)
		server.TLSConfig = tlsConfig(certificate.get, c.clientCA.VerifyOptions)
		scheme = "https"
	}
	ln, err := httpserve.Listen(ctx, c.cfg.Address, "--address")
	if err != nil {
		return err
	}
	c.sayHow(scheme, ln.Addr())
	c.tasks = append(c.tasks, func(ctx context.Context) error {
		refused := c.server.metrics.refusals.WithLabelValues("connections").Inc
		fair := newFairListener(ln, c.cfg.Limits.Connections, refused)
		return httpserve.Run(ctx, server, netutil.LimitListener(fair, maxConnections))
	})
	return nil
}

// sayHow tells the log what the catalog is, and what an operator might not have meant.
func (c *catalog) sayHow(scheme string, address net.Addr) {
	c.log.Info("Serving the catalog", "address", address.String(), "scheme", scheme)
	if c.cfg.TLS.Off {
		c.log.Info("Tokens of callers cross the network in plain text (--plain-http): put something before it that has TLS")
	} else if c.cfg.TLS.CertFile == "" {
		c.log.Info("The certificate is one that nobody vouches for: give another by --tls-cert-file and --tls-key-file")
	}
	switch {
	case c.cfg.Access.AnonymousToggle && c.cfg.TLS.Off:
		c.log.Error(nil, "Everybody who reaches the catalog may enable and disable providers, and so may every page that "+
			"their browsers show, which do not say over plain HTTP where a request is from (--anonymous-toggle, --plain-http)")
	case c.cfg.Access.AnonymousToggle:
		c.log.Error(nil, "Everybody who reaches the catalog may enable and disable providers (--anonymous-toggle)")
	}
}

// serveOperators listens for probes and for metrics.
func (c *catalog) serveOperators(ctx context.Context) error {
	if address := c.cfg.HealthAddress; address != "" {
		mux := http.NewServeMux()
		alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
		mux.HandleFunc("GET /livez", alive)
		mux.HandleFunc("GET /healthz", alive)
		mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
			if !c.server.synced() {
				http.Error(w, "the caches are not filled yet", http.StatusServiceUnavailable)
				return
			}
			alive(w, r)
		})
		if err := c.listen(ctx, address, "--health-probe-address", mux); err != nil {
			return err
		}
	}
	if c.cfg.MetricsAddress == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	if err := c.server.metrics.expose(registry, c.server.allowances.Streams); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, crmetrics.Registry},
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return c.listen(ctx, c.cfg.MetricsAddress, "--metrics-address", mux)
}

func (c *catalog) listen(ctx context.Context, address, flag string, handler http.Handler) error {
	ln, err := httpserve.Listen(ctx, address, flag)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: writeTimeout,
	}
	c.tasks = append(c.tasks, func(ctx context.Context) error { return httpserve.Run(ctx, server, ln) })
	return nil
}
