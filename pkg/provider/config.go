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

	// Home is the connection to the cluster where the node is; the one to the remote cluster comes from a Secret, and
	// has the user agent of Home.
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

	// BrokerNode, if set, is the node whose pods this virtual kubelet serves as far as they are assigned to
	// VirtualNode, instead of a Node of its own (pkg/provider/brokernode). Node.Name stays the name by which Liqo marks
	// its remote objects; Node.Create must be false.
	BrokerNode string
	// ForwardTokens lets the service account tokens of consumers through to the provider clusters behind a broker's
	// node.
	ForwardTokens bool

	Node       NodeConfig
	Reflection ReflectionConfig
	Addresses  AddressConfig
	Lease      LeaseConfig
	Kubelet    KubeletConfig

	// UnknownFlags were given and are ignored.
	UnknownFlags []string
	// MetricsAddress and HealthAddress are listened on unless empty.
	MetricsAddress string
	HealthAddress  string

	// InformerResyncPeriod is Liqo's --resync-period.
	InformerResyncPeriod time.Duration
	// StartupTimeout bounds how long the objects and the API servers needed to start may be missing.
	StartupTimeout time.Duration
	// RequestTimeout bounds every API request that is not a watch or another stream; 0 means no bound.
	RequestTimeout time.Duration

	// Tracer continues the traces of pods of a broker's node; nil does not trace.
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

	// LabelsNotReflected and AnnotationsNotReflected add to those of the VirtualNode's offloading patch.
	LabelsNotReflected      []string
	AnnotationsNotReflected []string
}

// AddressConfig chooses how pods that the remote cluster has forwarded are reached; the zero value is Liqo's own way,
// for which they run in the remote cluster.
type AddressConfig struct {
	// Direct prefers the network of this cluster with the one where a pod runs.
	Direct bool
	// RemoteIPAM is asked for pods that are not reached directly; nil if there is none.
	RemoteIPAM *RemoteIPAMConfig
	// Table translates the addresses of the remote cluster; nil to read its Configuration.
	Table *netconfig.Table
	// Allowed are ranges of addresses that pods of the remote cluster may show beside those of Liqo's network with it.
	Allowed []netip.Prefix
	// Announce writes on the pods of a broker's node where they run. Without it, consumers do not learn it.
	Announce bool
	// Opaque shows the pods of a broker's node under their addresses in this cluster's external range, so that consumers
	// without any of our settings reach them.
	Opaque bool
}

// RemoteIPAMConfig is the server that is asked how the pods that the remote cluster has forwarded are reached through
// it.
type RemoteIPAMConfig struct {
	// Server is HOST:PORT.
	Server string
	// Insecure uses plaintext, as Liqo v0.x does.
	Insecure bool
	// CAFile and ServerName are what the server's certificate is checked against; see ipam.ClientTLS for the defaults.
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
