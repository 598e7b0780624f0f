package catalog

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/server"
)

// Config configures the catalog.
type Config struct {
	Log logr.Logger
	// Home is the connection to the cluster of the broker.
	Home *rest.Config
	// QPS and Burst limit the requests to it, as client-go does.
	QPS   float32
	Burst int

	// LiqoV0 means that Liqo v0.x is installed in that cluster, and therefore no broker.
	LiqoV0 bool

	// Version is this program's version, Node the broker's node.
	Version, Node string
	// HistoryInterval is the interval of the samples in the histories of providers.
	HistoryInterval time.Duration

	// Address is HOST:PORT or :PORT.
	Address string
	TLS     TLSConfig
	Access  server.Access
	Limits  caller.Limits

	// MetricsAddress and HealthAddress are not served if empty.
	MetricsAddress, HealthAddress string
}

// TLSConfig has the certificate of the catalog, and the CA of its callers.
type TLSConfig struct {
	// Off serves plain HTTP: then there are no client certificates.
	Off bool
	// Public also serves the data that anonymous callers may read over plain HTTP, on the same port. It has no effect
	// with Off.
	Public bool
	// CertFile and KeyFile are the serving certificate, read again when they change; "" is a self-signed one.
	CertFile, KeyFile string
	// Secret is where all replicas keep the self-signed certificate; without a name each makes one when it starts.
	// Names are the names in the certificate in the Secret, at least one.
	Secret types.NamespacedName
	Names  []string
	// ClientCAFile is the CA of client certificates; "" is the CA that the API server publishes.
	ClientCAFile string
}

const (
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 16 << 10
	// readTimeout bounds the arrival of a request, writeTimeout the rest of it, idleTimeout a connection without
	// requests.
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
)
