package kubeletapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/exec"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"
)

const (
	// streamIdle is the maximum idle time of exec, attach and port-forward, as in the real kubelet
	// (--streaming-connection-idle-timeout). virtual-kubelet's default of 30 s, which Liqo uses, ends an idle shell.
	streamIdle = 4 * time.Hour
	// streamCreation is the time in which both sides must open the streams.
	streamCreation = 30 * time.Second
)

// Scraper fetches the remote cluster's metrics of this cluster's pods. uri is the path and query of the request.
type Scraper func(ctx context.Context, uri *url.URL) ([]byte, error)

// The API versions of Liqo's metric agent, for Liqo v1 and Liqo v0.x.
const (
	MetricsV1 = "v1beta1"
	MetricsV0 = "v1alpha1"
)

// RemoteScrape asks Liqo's metric agent in the remote cluster, in one version of its API, and returns the whole answer.
func RemoteScrape(remote kubernetes.Interface, version, home string) Scraper {
	return func(ctx context.Context, uri *url.URL) ([]byte, error) {
		return ScrapeRequest(remote, version, home, uri).DoRaw(ctx)
	}
}

// ScrapeRequest is the request to Liqo's metric agent in the remote cluster (metrics.liqo.io/<version> scrape/<home
// cluster>/…).
func ScrapeRequest(remote kubernetes.Interface, version, home string, uri *url.URL) *rest.Request {
	target := url.URL{
		Path:     path.Join("/apis/metrics.liqo.io", version, "scrape", home, uri.Path),
		RawQuery: uri.RawQuery,
	}
	return remote.CoreV1().RESTClient().Get().RequestURI(target.String())
}

// NewHandler returns the routes of Liqo's own virtual kubelet: pods answers for the pods of the node, scraper the
// metrics.
func NewHandler(log logr.Logger, pods workload.PodHandler, scraper Scraper) http.Handler {
	mux := http.NewServeMux()
	HandleMetrics(mux, log, scraper)
	cfg := api.PodHandlerConfig{
		RunInContainer: func(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
			return exitOf(pods.Exec(ctx, namespace, pod, container, cmd, attach))
		},
		AttachToContainer: func(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
			return exitOf(pods.Attach(ctx, namespace, pod, container, attach))
		},
		PortForward:           pods.PortForward,
		GetContainerLogs:      pods.Logs,
		GetStatsSummary:       pods.Stats,
		GetPodsFromKubernetes: pods.List,
		GetPods:               pods.List,
		StreamIdleTimeout:     streamIdle,
		StreamCreationTimeout: streamCreation,
	}
	api.AttachPodRoutes(cfg, mux, true)

	// virtual-kubelet v1.11.0 swaps the two timeouts of port-forward.
	cfg.StreamIdleTimeout, cfg.StreamCreationTimeout = streamCreation, streamIdle
	mux.Handle("/portForward/", api.InstrumentHandler(api.PodHandler(cfg, true)))
	return mux
}

// exitOf returns the exit of a command, if an error wraps one: virtual-kubelet reports the exit code only of an error that
// is an ExitError itself (ServeExec in its internal/kubernetes/remotecommand), and Liqo wraps it.
func exitOf(err error) error {
	var exit exec.ExitError
	if errors.As(err, &exit) {
		return exit
	}
	return err
}

// HandleMetrics adds the routes of the metrics.
func HandleMetrics(mux *http.ServeMux, log logr.Logger, scraper Scraper) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		data, err := scraper(r.Context(), r.URL)
		if err != nil {
			log.Error(err, "Cannot scrape the remote cluster", "path", r.URL.Path)
			http.Error(w, "Cannot scrape the remote cluster", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(data)
	}
	for _, route := range []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"} {
		mux.HandleFunc(route, handler)
	}
}
