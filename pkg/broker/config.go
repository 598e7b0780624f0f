package broker

import (
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/accounting"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/network"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/offloading"
)

// Config is the configuration of the broker.
type Config struct {
	Log logr.Logger
	// Home is the connection to the cluster of the node. Those to the providers have its user agent.
	Home *rest.Config

	// NodeName is the name of the broker's Node, NodeIP the address of this pod: the node's InternalIP while it leads.
	NodeName, NodeIP string
	// OwnerClusterRole names a ClusterRole that owns the Node, so that the Node is deleted when the broker is
	// uninstalled; "" if no ClusterRole owns it.
	OwnerClusterRole string
	// Namespace is where the lease of the leader is.
	Namespace string
	// ProviderSelector selects VirtualNodes by their labels.
	ProviderSelector labels.Selector
	// ProviderProxies are the proxyURLs that kubeconfigs of providers may name; "*" is any.
	ProviderProxies []string

	// Offloading is how namespaces of consumers are offloaded to the providers; nil is not at all.
	Offloading *offloading.Config
	// Offers is how consumers are granted resources; nil is not at all.
	Offers *aggregator.Config

	// RequireGuard has nothing assigned, moved and offered while the policies of deploy/guard.yaml are not in force.
	RequireGuard bool

	// IsolateConsumers makes the gateways drop packets that a consumer sends to other pods than its own.
	IsolateConsumers bool

	Kubelet KubeletConfig
	// IPAM is the configuration of the remote IPAM; nil disables it.
	IPAM *network.IPAMConfig
	// Ledger is nil if there is none.
	Ledger *accounting.Settings
	Lease  LeaseConfig
	Times  Times

	// MovesAtOnce limits how many pods have left their provider and do not run elsewhere yet.
	MovesAtOnce int
	// Workers is how many pods are reconciled in parallel.
	Workers int
	// QPS and Burst are client-go's limits of the requests to the home cluster.
	QPS   float32
	Burst int

	// MetricsAddress and HealthAddress are listened on unless empty.
	MetricsAddress, HealthAddress string
	// Tracer makes the spans of pods; nil disables tracing.
	Tracer trace.Tracer
}

// KubeletConfig is the configuration of the kubelet API.
type KubeletConfig struct {
	Port              uint16
	CertificateType   kubeletapi.CertificateType
	CertDir           string
	ClientCAFile      string
	AuthorizationMode kubeletapi.AuthorizationMode
}

// LeaseConfig is the timing of the election and of the Node's lease.
type LeaseConfig struct {
	Duration, RenewDeadline, RetryPeriod time.Duration
	// NodeDuration is the duration of the Node's own lease.
	NodeDuration time.Duration
}

// Times are intervals and timeouts.
type Times struct {
	// ProbeInterval and ProbeTimeout apply to the probe of each provider.
	ProbeInterval, ProbeTimeout time.Duration
	// FailoverAfter is how long a provider must have been unreachable before its pods move, unless a policy sets it.
	FailoverAfter time.Duration
	// SuspicionWindow is the time within which most providers must become unreachable for the broker to suspect itself.
	SuspicionWindow time.Duration
	// SuspicionLimit is how long a provider that stays unreachable counts for that while another one answers; 0 is no
	// limit.
	SuspicionLimit time.Duration
	// PendingTimeout is how long a pod may be Pending at a provider, unless a policy sets it; 0 is indefinitely.
	PendingTimeout time.Duration
	// RefusalMemory is how long a VirtualNode that refused a pod, or did not start it, is not tried again for it.
	RefusalMemory time.Duration
	// ReserveAfter is how long a pod waits until capacity is reserved for it; 0 is never.
	ReserveAfter time.Duration
	// StatusInterval is the least time between two writes of one ProviderCluster's status.
	StatusInterval time.Duration
	// RequestTimeout bounds every request to a provider that is not a stream.
	RequestTimeout time.Duration
}
