package provider

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
	metricsv1beta1 "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
)

// Clients are all the connections that the reflection uses.
type Clients struct {
	Local, Remote         kubernetes.Interface
	LocalLiqo, RemoteLiqo liqoclient.Interface
	// RemoteMetrics reads the pods' usage in a remote namespace, for /stats/summary.
	RemoteMetrics func(namespace string) metricsv1beta1.PodMetricsInterface
	// RemoteConfig is what exec, attach and port-forward dial with: Liqo opens those connections itself.
	RemoteConfig *rest.Config
}

// Lenses change what Liqo's reflection sees of the clusters, without a change in Liqo. A nil field changes nothing.
//
// A client lens embeds the interface that it decorates and overrides the verbs concerned. One that rewrites or filters
// a watch must pass bookmarks on: client-go's informers start with a watch-list, and wait for its closing bookmark.
type Lenses struct {
	// Clients decorates the connections.
	Clients func(Clients) Clients
}

// NewClients connects to both clusters as Liqo's NewLiqoProvider does. No request is made yet.
func NewClients(local, remote *rest.Config) (Clients, error) {
	clients := Clients{RemoteConfig: remote}
	var err error
	if clients.Local, err = kubernetes.NewForConfig(protobuf(local)); err != nil {
		return Clients{}, fmt.Errorf("home cluster: %w", err)
	}
	if clients.LocalLiqo, err = liqoclient.NewForConfig(local); err != nil {
		return Clients{}, fmt.Errorf("home cluster: %w", err)
	}
	if clients.Remote, err = kubernetes.NewForConfig(protobuf(remote)); err != nil {
		return Clients{}, fmt.Errorf("remote cluster: %w", err)
	}
	if clients.RemoteLiqo, err = liqoclient.NewForConfig(remote); err != nil {
		return Clients{}, fmt.Errorf("remote cluster: %w", err)
	}
	usage, err := metricsclient.NewForConfig(remote)
	if err != nil {
		return Clients{}, fmt.Errorf("remote cluster: %w", err)
	}
	clients.RemoteMetrics = usage.MetricsV1beta1().PodMetricses
	return clients, nil
}

// protobuf returns config for a client of Kubernetes' own types, which API servers also speak in a form that takes a
// fraction of JSON's time to decode. Custom resources have JSON only.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}
