package catalog

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// Config is everything that the catalog is told.
type Config struct {
	Log logr.Logger
	// Home is the connection to the cluster of the broker.
	Home *rest.Config
	// QPS and Burst are client-go's limits of the requests to it.
	QPS   float32
	Burst int

	// Version is that of this program, and Node the broker's node.
	Version, Node string
	// HistoryInterval is how often providers are sampled for the charts.
	HistoryInterval time.Duration

	// Address is HOST:PORT or :PORT.
	Address string
	TLS     TLSConfig
	Access  AccessConfig
	Limits  caller.Limits

	// MetricsAddress and HealthAddress are listened on unless empty.
	MetricsAddress, HealthAddress string
}

// TLSConfig is how the catalog shows who it is, and by what it knows certificates of its callers.
type TLSConfig struct {
	// Off serves plain HTTP: then there are no client certificates.
	Off bool
	// CertFile and KeyFile are the serving certificate, followed when they change; "" is one that nobody vouches for.
	CertFile, KeyFile string
	// ClientCAFile is the CA of client certificates; "" is the one that the API server publishes.
	ClientCAFile string
}

// AccessConfig is what strangers may do.
type AccessConfig struct {
	// ReadAuth keeps the list of providers from strangers.
	ReadAuth bool
	// AnonymousToggle lets everybody enable and disable providers by /api/toggle.
	AnonymousToggle bool
}

const (
	// maxBody and maxHeader bound what a request may have, and maxURL its first line; in bytes.
	maxBody   = 64 << 10
	maxHeader = 16 << 10
	maxURL    = 4 << 10

	// requestTimeout bounds the work on one request, readTimeout its arrival and writeTimeout, from then on, its answer;
	// idleTimeout is how long a connection is kept.
	requestTimeout    = 15 * time.Second
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
	// maxConnections bounds the memory of connections, and requestsPerConnection that of one (HTTP/2).
	maxConnections        = 4096
	requestsPerConnection = 100

	// streamTimeout ends a stream, so that rights are asked anew; its client comes back. keepAlive is how often an idle
	// one is heard, and streamWriteTimeout how long a write to one may take.
	streamTimeout      = 10 * time.Minute
	keepAlive          = 15 * time.Second
	streamWriteTimeout = 10 * time.Second

	// explainWorth is how many requests an explanation counts for: it may evaluate expressions for every provider.
	explainWorth = 5
)
