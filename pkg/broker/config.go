package broker

import (
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/offer"
	"github.com/capacitorset/liqo-broker-vk/pkg/reoffload"
)

// Config is everything that the broker is told.
type Config struct {
	Log logr.Logger
	// Home is the connection to the cluster where the node is; those to the providers have its user agent.
	Home *rest.Config

	// NodeName is the name of the broker's Node, NodeIP the address of this pod: the node's InternalIP while it leads.
	NodeName, NodeIP string
	// OwnerClusterRole names a ClusterRole that the Node belongs to, so that it goes when the broker is uninstalled;
	// "" is none.
	OwnerClusterRole string
	// Namespace is where the lease of the leader is.
	Namespace string
	// ProviderSelector selects VirtualNodes by their labels.
	ProviderSelector labels.Selector

	// Reoffload is how namespaces of consumers are sent on to the providers; nil is not at all.
	Reoffload *reoffload.Config
	// Offers is how consumers are granted resources; nil is not at all.
	Offers *offer.Config

	Kubelet KubeletConfig
	// IPAM is what the remote IPAM is told; nil is none.
	IPAM  *IPAMConfig
	Lease LeaseConfig
	Times Times

	// MovesPerSecond and MovesBurst limit how fast pods are moved away from where they are.
	MovesPerSecond float64
	MovesBurst     int
	// Workers is how many pods are looked at in parallel.
	Workers int
	// QPS and Burst are client-go's limits of the requests to the home cluster.
	QPS   float32
	Burst int

	// MetricsAddress and HealthAddress are listened on unless empty.
	MetricsAddress, HealthAddress string
	// Tracer makes the spans of pods' ways; nil is none.
	Tracer trace.Tracer
}

// KubeletConfig is what the kubelet API is told.
type KubeletConfig struct {
	Port              uint16
	CertificateType   kubeletapi.CertificateType
	CertDir           string
	ClientCAFile      string
	AuthorizationMode kubeletapi.AuthorizationMode
}

// IPAMConfig is what the remote IPAM is told.
type IPAMConfig struct {
	// Address is HOST:PORT or :PORT.
	Address string
	// CertFile and KeyFile are the serving certificate, followed when they change; "" is that of the kubelet API.
	CertFile, KeyFile string
	// Insecure serves plaintext, and believes callers to be whom they say they are, as Liqo v0.x does.
	Insecure bool
	Limits   ipam.Limits
}

// LeaseConfig is the timing of the election and of the Node's lease.
type LeaseConfig struct {
	Duration, RenewDeadline, RetryPeriod time.Duration
	// NodeDuration is that of the Node's own lease.
	NodeDuration time.Duration
}

// Times are how long the broker waits for what.
type Times struct {
	// ProbeInterval and ProbeTimeout are those of the probe of each provider.
	ProbeInterval, ProbeTimeout time.Duration
	// FailoverAfter is how long a provider must have been unreachable before its pods move, unless a policy says.
	FailoverAfter time.Duration
	// SuspicionWindow is within what time most providers must vanish for the broker to suspect itself.
	SuspicionWindow time.Duration
	// PendingTimeout is how long a pod may be Pending at a provider, unless a policy says; 0 is for ever.
	PendingTimeout time.Duration
	// RefusalMemory is how long a slice that refused a pod, or did not start it, is not asked again.
	RefusalMemory time.Duration
	// StatusInterval is the least time between two writes of one ProviderCluster's status.
	StatusInterval time.Duration
	// RequestTimeout bounds every request to a provider that is not a stream.
	RequestTimeout time.Duration
}
