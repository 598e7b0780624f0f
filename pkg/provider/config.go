package provider

import (
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/election"
)

// Config is the configuration of a virtual kubelet. The fields carry the names of Liqo's flags where there is one.
type Config struct {
	Log logr.Logger

	// Home is the connection to the cluster of the node. The connection to the remote cluster comes from a Secret and
	// uses the user agent of Home.
	Home                 *rest.Config
	HomeCluster          liqov1beta1.ClusterID
	ForeignCluster       liqov1beta1.ClusterID
	KubeconfigSecretName string

	// PodName is this replica's identity in the leases.
	PodName string
	// VirtualNode is read once for its offloading patch, and watched by Liqo's node provider.
	VirtualNode          string
	VirtualNodeNamespace string
	TenantNamespace      string
	LiqoNamespace        string

	// BrokerNode, if set, is the broker's node: this virtual kubelet serves the pods of that node that are assigned to
	// VirtualNode, and has no Node of its own (pkg/provider/brokernode). Node.Name remains the name with which Liqo
	// marks its remote objects. Node.Create must be false.
	BrokerNode string
	// ForwardTokens forwards the service account tokens of consumers to the provider clusters behind a broker's node.
	ForwardTokens bool

	Node       NodeConfig
	Reflection ReflectionConfig
	Addresses  AddressConfig
	Lease      LeaseConfig
	Kubelet    KubeletConfig

	// UnknownFlags are flags that were given but are not known. They are ignored.
	UnknownFlags []string
	// MetricsAddress and HealthAddress are the addresses to listen on; an empty one disables its server.
	MetricsAddress string
	HealthAddress  string

	// InformerResyncPeriod is Liqo's --resync-period.
	InformerResyncPeriod time.Duration
	// StartupTimeout bounds how long the objects and the API servers needed to start may be missing.
	StartupTimeout time.Duration
	// RequestTimeout bounds every API request that is not a watch or another stream; 0 means no bound.
	RequestTimeout time.Duration

	// Tracer continues the traces of the pods of a broker's node; nil disables tracing.
	Tracer trace.Tracer
}

// NodeConfig describes the Node object.
type NodeConfig struct {
	Name string
	// IP is the address of this pod: the node's InternalIP, where the API server reaches the kubelet API.
	IP string
	// Create is false when another process owns the Node object.
	Create           bool
	LeaseDuration    time.Duration
	PingInterval     time.Duration
	PingTimeout      time.Duration
	CheckNetwork     bool
	ExtraLabels      map[string]string
	ExtraAnnotations map[string]string
}

// ReflectionConfig configures Liqo's reflectors.
type ReflectionConfig struct {
	Reflectors          map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig
	DisableIPReflection bool
	LocalPodCIDRs       []string

	EnableAPIServerSupport bool
	HomeAPIServerHost      string
	HomeAPIServerPort      string

	EnableStorage                   bool
	VirtualStorageClassName         string
	RemoteRealStorageClassName      string
	EnableIngress                   bool
	RemoteRealIngressClassName      string
	EnableLoadBalancer              bool
	RemoteRealLoadBalancerClassName string

	// LabelsNotReflected and AnnotationsNotReflected add to the ones in the VirtualNode's offloading patch.
	LabelsNotReflected      []string
	AnnotationsNotReflected []string
}

// AddressConfig selects how this cluster reaches pods that the remote cluster has forwarded. The zero value is Liqo's
// own behaviour, which assumes that they run in the remote cluster.
type AddressConfig struct {
	// Direct prefers this cluster's own network with the cluster where a pod runs.
	Direct bool
	// RemoteIPAM is asked for pods that are not reached directly; nil if there is none.
	RemoteIPAM *RemoteIPAMConfig
	// Table translates the addresses of the remote cluster; nil to read its Configuration.
	Table *netconfig.Table
	// Allowed are address ranges that pods of the remote cluster may show in addition to the ranges of Liqo's network
	// with it.
	Allowed []netip.Prefix
	// Announce annotates the pods of a broker's node with the place where they run. Without it, consumers cannot learn
	// it.
	Announce bool
	// Opaque shows the pods of a broker's node with their addresses in this cluster's external range, so that consumers
	// without any of our settings reach them.
	Opaque bool
}

// RemoteIPAMConfig is the server that returns the addresses under which pods that the remote cluster has forwarded are
// reached through it.
type RemoteIPAMConfig struct {
	// Server is HOST:PORT.
	Server string
	// Insecure uses plaintext, as Liqo v0.x does.
	Insecure bool
	// CAFile and ServerName verify the server's certificate; see ipam.ClientTLS for the defaults.
	CAFile, ServerName string
}

// LeaseConfig configures both leader elections.
type LeaseConfig struct {
	// ReflectionEnabled is --vk-lease-enabled. Without the second election Liqo reflects pods only: every other
	// reflector skips silently unless leaderelection.IsLeader().
	ReflectionEnabled bool
	election.Times
}

// KubeletConfig configures the kubelet API.
type KubeletConfig struct {
	Port              uint16
	CertificateType   kubeletapi.CertificateType
	CertDir           string
	ClientCAFile      string
	AuthorizationMode kubeletapi.AuthorizationMode
}
