package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi/proxy/exposition"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Config configures NewHandler.
type Config struct {
	Log      logr.Logger
	NodeName string
	// Reader reads only the pods of the node, and their namespaces.
	Reader    client.Reader
	Providers Providers
}

// Providers gives access to the provider clusters.
type Providers interface {
	// Place returns the namespace where the pods of a local namespace that are assigned to a VirtualNode run; false
	// while its provider is not connected or does not have the namespace.
	Place(at scheduler.Place, namespace string) (Place, bool)
	// Scrapers returns one Scraper for each connected provider, sorted by id.
	Scrapers(ctx context.Context) []Scraper
}

// Place is a namespace of a provider cluster, and the identity that this cluster has there.
type Place struct {
	Namespace string
	Config    *rest.Config
	Kube      kubernetes.Interface
	Metrics   metricsclient.Interface
}

type server struct {
	Config
	// answerWithin is the time in which a provider must start its answer to logs, exec, attach and port-forward.
	answerWithin time.Duration
	started      metav1.Time
	// used bounds the usage that providers add to the metrics of the node.
	used *exposition.Usage
	// streams limits the open requests to each provider, by its id. consumers limits the ones for the pods of one
	// consumer to each provider, and all limits the ones for the pods of one consumer to all providers together.
	streams, consumers, all *httpserve.Shares
}

// ofAll is the maximum number of open logs, execs, attaches and port-forwards to all providers together. The rest of
// the API server's limit is for lists, usage and metrics.
const ofAll = kubeletapi.OfCaller * 7 / 8

// ofProvider is the maximum number of open logs, execs, attaches and port-forwards to each provider: a quarter of the
// API server's limit, so that three slow providers leave a quarter for the others.
const ofProvider = kubeletapi.OfCaller / 4

// ofConsumer is the maximum number of them for the pods of one consumer. The caller is always the API server. To all
// providers together, a consumer may have at most as many as are free.
const ofConsumer = ofProvider / 2

// answerWithin is the time that client-go waits for a connection.
const answerWithin = 30 * time.Second

// NewHandler returns the routes of the kubelet API. It serves every caller: the caller must be authenticated and
// authorised before.
func NewHandler(cfg Config) http.Handler {
	return newServer(cfg, answerWithin).routes()
}

func newServer(cfg Config, answerWithin time.Duration) *server {
	return &server{
		Config: cfg, answerWithin: answerWithin, started: metav1.Now(), used: exposition.NewUsage(),
		streams: httpserve.NewShares(ofProvider), consumers: httpserve.NewShares(ofConsumer),
		all: httpserve.NewFairShares(ofAll),
	}
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.proxied(logs))
	for route, subresource := range map[string]subresource{
		"/exec/{namespace}/{pod}/{container}":   exec,
		"/attach/{namespace}/{pod}/{container}": attach,
		"/portForward/{namespace}/{pod}":        portForward,
	} {
		mux.HandleFunc("GET "+route, s.proxied(subresource)) // WebSocket
		mux.HandleFunc("POST "+route, s.proxied(subresource))
	}
	mux.HandleFunc("GET /pods", api.HandleRunningPods(s.list))
	mux.HandleFunc("GET /runningpods/", api.HandleRunningPods(s.list))
	mux.HandleFunc("GET /stats/summary", api.HandlePodStatsSummary(s.stats))
	mux.HandleFunc("GET /stats/summary/", api.HandlePodStatsSummary(s.stats))
	kubeletapi.HandleMetrics(mux, s.Log, s.scrape)
	return mux
}

// list returns the pods of the node.
func (s *server) list(ctx context.Context) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.Reader.List(ctx, &pods); err != nil {
		return nil, err
	}
	list := make([]*corev1.Pod, 0, len(pods.Items))
	for i := range pods.Items {
		list = append(list, &pods.Items[i])
	}
	return list, nil
}

// locate returns the place where a pod of this node runs, and the id of that provider.
func (s *server) locate(ctx context.Context, namespace, name string) (place Place, provider string, err error) {
	var pod corev1.Pod
	err = s.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &pod)
	if kerrors.IsNotFound(err) {
		return Place{}, "", failuref(http.StatusNotFound, "pod %s/%s not found on node %s", namespace, name, s.NodeName)
	}
	if err != nil {
		return Place{}, "", err
	}
	at := placement.AssignedTo(&pod)
	if at == (scheduler.Place{}) {
		return Place{}, "", failuref(http.StatusBadRequest, "pod %s/%s is not assigned to a provider yet", namespace, name)
	}
	place, ok := s.Providers.Place(at, namespace)
	if !ok {
		return Place{}, "", failuref(http.StatusInternalServerError,
			"provider %s of VirtualNode %s is not connected, or does not have namespace %s", at.Provider, at.VirtualNode, namespace)
	}
	return place, at.Provider, nil
}
