// Package connect makes the connections of a virtual kubelet to the API servers of both clusters.
package connect

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
	// RemoteConfig is for exec, attach and port-forward: Liqo opens those connections itself.
	RemoteConfig *rest.Config
}

// New connects to both clusters as Liqo's NewLiqoProvider does. No request is made yet.
func New(local, remote *rest.Config) (Clients, error) {
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

// Separate returns a client of the home cluster with its own rate limit.
func Separate(local *rest.Config) (kubernetes.Interface, error) {
	config := protobuf(local)
	config.RateLimiter, config.QPS, config.Burst = nil, reviewsPerSecond, reviewsBurst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}
	return client, nil
}

// The limits of a separate client.
const (
	reviewsPerSecond = 20
	reviewsBurst     = 40
)

// protobuf returns config for a client of Kubernetes' own types. API servers serve these in protobuf too, which takes a
// fraction of JSON's time to decode. Custom resources are served as JSON only.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}
