// Package catalog runs the catalog: an HTTP API, described in docs/catalog.md and by its own OpenAPI document, and a
// dashboard. Package server answers the requests from package view; package caller identifies the callers and their
// permissions; package api has the JSON types. With Liqo v0.x package liqov0 answers instead.
package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/dashboard"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/liqov0"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/server"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// remedy is the command that allows the catalog to review its callers.
const remedy = "kubectl create clusterrolebinding liqo-broker-vk-catalog-auth --clusterrole=system:auth-delegator " +
	"--serviceaccount=<namespace>:<service account of the catalog>"

// errStopped means that a task ended before the catalog did.
var errStopped = errors.New("a component of the catalog stopped unexpectedly")

// Run runs the catalog until ctx ends. It then returns nil, after everything has stopped; any other end is an error.
func Run(ctx context.Context, cfg Config) error {
	options, prepare := view.CacheOptions(cfg.Node), (*catalog).prepare
	if cfg.LiqoV0 {
		options, prepare = liqov0.CacheOptions(), (*catalog).prepareLiqoV0
	}
	c, err := newCatalog(cfg, options)
	if err != nil {
		return err
	}
	if err := prepare(c, ctx); err != nil {
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

// catalog has the parts that Run assembles.
type catalog struct {
	cfg     Config
	log     logr.Logger
	metrics *middleware.Metrics
	cache   cache.Cache
	kube    kubernetes.Interface
	live    client.Client
	// clientCA verifies client certificates; nil without TLS.
	clientCA auth.ClientCA
	// certificates authenticates client certificates; nil without TLS. identifier and allowances are set by identify.
	certificates authenticator.Request
	identifier   *caller.Identifier
	allowances   *caller.Allowances
	// certificate returns the served certificate, or the reason why there is none yet; nil without TLS.
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// tasks run until ctx ends.
	tasks []func(ctx context.Context) error
}

// newCatalog makes the parts that do not depend on the version of Liqo. Requests are answered from a cache with these
// options.
func newCatalog(cfg Config, options cache.Options) (*catalog, error) {
	scheme, err := apischeme.New()
	if err != nil {
		return nil, err
	}
	home := rest.CopyConfig(cfg.Home)
	home.QPS, home.Burst = cfg.QPS, cfg.Burst
	options.Scheme = scheme
	read, err := cache.New(home, options)
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	kube, err := kubernetes.NewForConfig(home)
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	live, err := client.New(home, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	tasks := []func(ctx context.Context) error{read.Start}
	var ca auth.ClientCA
	var certificates authenticator.Request
	if !cfg.TLS.Off {
		if ca, err = auth.NewClientCA(cfg.TLS.ClientCAFile, kube); err != nil {
			return nil, err
		}
		certificates = auth.NewCertificateAuthenticator(ca)
		tasks = append(tasks, func(ctx context.Context) error {
			ca.Run(ctx, 1)
			return nil
		})
	}
	return &catalog{
		cfg: cfg, log: cfg.Log, metrics: middleware.NewMetrics(), cache: read, kube: kube, live: live,
		clientCA: ca, certificates: certificates, tasks: tasks,
	}, nil
}

// identify makes the parts that identify and limit callers. consumers is nil if no caller acts for a consumer.
func (c *catalog) identify(consumers caller.Consumers) {
	c.allowances = caller.NewAllowances(c.cfg.Limits, consumers, clock.RealClock{})
	c.identifier = caller.NewIdentifier(auth.NewTokenReviewer(c.kube, remedy), c.certificates, c.allowances, clock.RealClock{})
}

func (c *catalog) prepare(ctx context.Context) error {
	shown := view.New(c.cache, view.Config{Node: c.cfg.Node, SampleEvery: c.cfg.HistoryInterval})
	c.tasks = append(c.tasks, shown.Run)
	c.identify(shown)
	clk := clock.RealClock{}
	s := server.New(server.Config{
		Log: c.log, Version: c.cfg.Version, Node: c.cfg.Node, Access: c.cfg.Access, Clock: clk,
		View: shown, Explain: explain.NewExplainer(c.cache, c.cfg.Node, shown.State(), clk.Now), Live: c.live,
		Identifier: c.identifier, Allowances: c.allowances, Rights: c.rights(shown), Metrics: c.metrics,
	})
	handler, err := s.Handler(dashboard.Handler())
	if err != nil {
		return err
	}
	return c.serveAll(ctx, handler, s.Plain(handler), shown.Synced)
}

// prepareLiqoV0 is prepare for a cluster with Liqo v0.x.
func (c *catalog) prepareLiqoV0(ctx context.Context) error {
	clusters := liqov0.NewClusters(c.cache)
	c.tasks = append(c.tasks, clusters.Run)
	c.identify(nil)
	answers := liqov0.New(liqov0.Config{
		Log: c.log, Clock: clock.RealClock{}, ReadAuth: c.cfg.Access.ReadAuth, AnonymousToggle: c.cfg.Access.AnonymousToggle,
		Clusters: clusters, Live: c.live, Identifier: c.identifier, Allowances: c.allowances, Rights: c.rights(nil), Metrics: c.metrics,
	})
	c.log.Info("Detected Liqo v0.x, serving only /api/clusters and /api/toggle, without the providers of a broker")
	handler := answers.Handler()
	return c.serveAll(ctx, handler, answers.Plain(handler), clusters.Synced)
}

// rights reviews the permissions of callers; tenants is nil if no caller acts for a consumer.
func (c *catalog) rights(tenants caller.Tenants) *caller.Rights {
	return &caller.Rights{Authorizer: auth.NewLimitedReviewer(c.kube, remedy, c.allowances.SpendReview), Tenants: tenants}
}

// serveAll serves callers and operators. synced reports whether requests can be answered.
func (c *catalog) serveAll(ctx context.Context, handler, plain http.Handler, synced func() bool) error {
	if err := c.serve(ctx, handler, plain); err != nil {
		return err
	}
	return c.serveOperators(ctx, synced)
}

// serve serves handler and, without TLS on the same port, plain if it is configured.
func (c *catalog) serve(ctx context.Context, handler, plain http.Handler) error {
	httpServer := c.newServer(handler)
	scheme := "http"
	if !c.cfg.TLS.Off {
		certificate, err := c.newServing()
		if err != nil {
			return err
		}
		c.tasks, c.certificate = append(c.tasks, certificate.run), certificate.get
		httpServer.TLSConfig = tlsConfig(certificate.get, c.clientCA.VerifyOptions)
		scheme = "https"
	}
	ln, err := httpserve.Listen(ctx, c.cfg.Address, "--address")
	if err != nil {
		return err
	}
	c.logSettings(scheme, ln.Addr())
	refused := c.metrics.RefusedConnections()
	ln = c.allowances.Connections.LimitedListener(ln, c.cfg.Limits.Connections, caller.TotalConnections, refused.Inc)
	if c.cfg.TLS.Off || !c.cfg.TLS.Public {
		c.tasks = append(c.tasks, func(ctx context.Context) error { return httpserve.Run(ctx, httpServer, ln) })
		return nil
	}
	split, plainServer := httpserve.Split(ln, readHeaderTimeout), c.newServer(plain)
	c.tasks = append(c.tasks, split.Run,
		func(ctx context.Context) error { return httpserve.Run(ctx, httpServer, split.Secure()) },
		func(ctx context.Context) error { return httpserve.Run(ctx, plainServer, split.Plain()) })
	return nil
}

func (c *catalog) newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:     handler,
		ReadTimeout: readTimeout, ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnContext: c.allowances.Connections.ConnContext,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(c.log.V(1)), slog.LevelInfo),
	}
}

// logSettings logs how the catalog is served, and settings that give access to anonymous callers.
func (c *catalog) logSettings(scheme string, address net.Addr) {
	c.log.Info("Serving the catalog", "address", address.String(), "scheme", scheme)
	if c.cfg.TLS.Off {
		c.log.Info("Callers send their tokens in plain text (--plain-http): terminate TLS in front of the catalog")
	} else if c.cfg.TLS.CertFile == "" {
		c.log.Info("Using a self-signed certificate: to use another one, set --tls-cert-file and --tls-key-file")
	}
	switch {
	case c.cfg.Access.AnonymousToggle && c.cfg.TLS.Off:
		c.log.Error(nil, "Anonymous callers may enable and disable providers, and so may every page in their browsers, "+
			"because browsers do not send the origin of a request over plain HTTP (--anonymous-toggle, --plain-http)")
	case c.cfg.Access.AnonymousToggle:
		c.log.Error(nil, "Anonymous callers may enable and disable providers (--anonymous-toggle)")
	}
}

// serveOperators listens for probes, and for scrapes of metrics.
func (c *catalog) serveOperators(ctx context.Context, synced func() bool) error {
	if address := c.cfg.HealthAddress; address != "" {
		handler := httpserve.HealthHandler(func(context.Context) (string, error) { return c.ready(synced()) })
		if err := c.listen(ctx, address, "--health-probe-address", handler); err != nil {
			return err
		}
	}
	if c.cfg.MetricsAddress == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	if err := c.metrics.Register(registry, c.allowances.Streams); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, crmetrics.Registry},
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return c.listen(ctx, c.cfg.MetricsAddress, "--metrics-address", mux)
}

// ready answers /readyz: a Service sends requests here once they can be answered, requests over TLS included.
func (c *catalog) ready(synced bool) (string, error) {
	if !synced {
		return "", errors.New("the caches are not synced yet")
	}
	if c.certificate != nil {
		if _, err := c.certificate(&tls.ClientHelloInfo{}); err != nil {
			return "", err
		}
	}
	return "ok", nil
}

func (c *catalog) listen(ctx context.Context, address, flag string, handler http.Handler) error {
	ln, err := httpserve.Listen(ctx, address, flag)
	if err != nil {
		return err
	}
	httpServer := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: writeTimeout,
	}
	c.tasks = append(c.tasks, func(ctx context.Context) error { return httpserve.Run(ctx, httpServer, ln) })
	return nil
}
