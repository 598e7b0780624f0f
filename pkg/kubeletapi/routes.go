package kubeletapi

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"k8s.io/client-go/kubernetes"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
)

const (
	// streamIdle is how long exec, attach and port-forward may be silent, as in the real kubelet
	// (--streaming-connection-idle-timeout). virtual-kubelet's default of 30 s, which Liqo's keeps, ends an idle shell.
	streamIdle = 4 * time.Hour
	// streamCreation is how long the two sides may take to open the streams.
	streamCreation = 30 * time.Second
)

// Scraper fetches what the remote cluster measures of this cluster's pods. uri is the path and query of the request.
type Scraper func(ctx context.Context, uri *url.URL) ([]byte, error)

// RemoteScrape asks Liqo's metric agent in the remote cluster (metrics.liqo.io/v1beta1 scrape/<home cluster>/…).
func RemoteScrape(remote kubernetes.Interface, home liqov1beta1.ClusterID) Scraper {
	return func(ctx context.Context, uri *url.URL) ([]byte, error) {
		target := url.URL{
			Path:     path.Join("/apis/metrics.liqo.io/v1beta1/scrape", string(home), uri.Path),
			RawQuery: uri.RawQuery,
		}
		return remote.CoreV1().RESTClient().Get().RequestURI(target.String()).DoRaw(ctx)
	}
}

// routes are those of Liqo's own virtual kubelet.
func routes(cfg Config) http.Handler {
	mux := http.NewServeMux()
	for _, route := range []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"} {
		mux.Handle(route, scrape(cfg))
	}
	pods := api.PodHandlerConfig{
		RunInContainer:        cfg.Pods.Exec,
		AttachToContainer:     cfg.Pods.Attach,
		PortForward:           cfg.Pods.PortForward,
		GetContainerLogs:      cfg.Pods.Logs,
		GetStatsSummary:       cfg.Pods.Stats,
		GetPodsFromKubernetes: cfg.Pods.List,
		GetPods:               cfg.Pods.List,
		StreamIdleTimeout:     streamIdle,
		StreamCreationTimeout: streamCreation,
	}
	api.AttachPodRoutes(pods, mux, true)

	// virtual-kubelet v1.11.0 hands port-forward its two timeouts the wrong way round.
	portForward := pods
	portForward.StreamIdleTimeout, portForward.StreamCreationTimeout = streamCreation, streamIdle
	mux.Handle("/portForward/", api.InstrumentHandler(api.PodHandler(portForward, true)))
	return mux
}

func scrape(cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := cfg.Scrape(r.Context(), r.URL)
		if err != nil {
			cfg.Log.Error(err, "Cannot scrape the remote cluster", "path", r.URL.Path)
			http.Error(w, "Cannot scrape the remote cluster", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(data)
	})
}
