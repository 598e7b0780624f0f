package provider

import (
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
)

// Config is everything that a virtual kubelet is told. The fields carry the names of Liqo's flags where there is one.
type Config struct {
	Log logr.Logger

	// Home is the connection to the cluster where the node is; the one to the remote cluster comes from a Secret, and has
	// the user agent of Home.
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
	// ForwardTokens lets the service account tokens of consumers through to the provider clusters behind a broker's node.
	ForwardTokens bool

	Node       NodeConfig
	Reflection ReflectionConfig
	Addresses  AddressConfig
	Lease      LeaseConfig
	Kubelet    KubeletConfig

	// MetricsAddress and HealthAddress are listened on unless empty.
	MetricsAddress string
	HealthAddress  string

	// InformerResyncPeriod is Liqo's --resync-period.
	InformerResyncPeriod time.Duration
	// StartupTimeout bounds how long the objects and the API servers needed to start may be missing.
	StartupTimeout time.Duration
	// RequestTimeout bounds every API request that is not a watch or another stream; 0 means no bound.
	RequestTimeout time.Duration

	// Tracer goes on with the traces of pods of a broker's node; nil is none.
	Tracer trace.Tracer

	// Lenses are put between Liqo and the clusters; the zero value is a plain virtual kubelet.
	Lenses Lenses
}

// view returns which pods of the broker's node are served, nil without a broker.
func (c *Config) view() *brokernode.View {
	if c.BrokerNode == "" {
		return nil
	}
	return &brokernode.View{Node: c.BrokerNode, VirtualNode: c.VirtualNode, LiqoNodeName: c.Node.Name, ForwardTokens: c.ForwardTokens}
}

// NodeConfig describes the Node object.
type NodeConfig struct {
	Name string
	// IP is the address of this pod: the node's InternalIP, where the API server reaches the kubelet API.
	IP string
	// Create is false when somebody else owns the Node object.
	Create           bool
	LeaseDuration    time.Duration
	PingInterval     time.Duration
	PingTimeout      time.Duration
	CheckNetwork     bool
	ExtraLabels      map[string]string
	ExtraAnnotations map[string]string
}

// ReflectionConfig is what Liqo's reflectors are told.
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

// LeaseConfig is the timing of both leader elections.
type LeaseConfig struct {
	// ReflectionEnabled is --vk-lease-enabled. Without the second election Liqo reflects pods only: every other
	// reflector skips silently unless leaderelection.IsLeader().
	ReflectionEnabled bool
	Duration          time.Duration
	RenewDeadline     time.Duration
	RetryPeriod       time.Duration
}

// KubeletConfig is what the kubelet API is told, besides the identity of the node.
type KubeletConfig struct {
	Port              uint16
	CertificateType   kubeletapi.CertificateType
	CertDir           string
	ClientCAFile      string
	AuthorizationMode kubeletapi.AuthorizationMode
}
