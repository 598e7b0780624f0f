package kubelet

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	discoveryv1alpha1 "github.com/liqotech/liqo/apis/discovery/v1alpha1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// Config is the configuration of a virtual kubelet. The fields have the names of Liqo's flags where there is one.
type Config struct {
	Log logr.Logger

	// Home is the connection to the cluster of the node. The connection to the remote cluster comes from a Secret and
	// uses the user agent of Home.
	Home                 *rest.Config
	HomeCluster          discoveryv1alpha1.ClusterIdentity
	ForeignCluster       discoveryv1alpha1.ClusterIdentity
	KubeconfigSecretName string
	TenantNamespace      string
	PodName              string

	Node       NodeConfig
	Reflection ReflectionConfig
	Lease      LeaseConfig
	API        APIConfig

	// IPAMServer is the network manager of this cluster; without it, Liqo's networking is disabled.
	IPAMServer string
	// RemoteIPAM returns the addresses of pods that the remote cluster has forwarded; nil if there is none.
	RemoteIPAM *RemoteIPAMConfig

	// UnknownFlags are flags that were given but are not known. They are ignored.
	UnknownFlags []string
	// MetricsAddress and HealthAddress are the addresses to listen on; an empty one disables its server.
	MetricsAddress string
	HealthAddress  string

	InformerResyncPeriod time.Duration
	// StartupTimeout bounds how long the objects and the API servers needed to start may be missing.
	StartupTimeout time.Duration
	// RequestTimeout bounds every API request that is not a watch or another stream; 0 means no bound.
	RequestTimeout time.Duration
}

// NodeConfig describes the Node object.
type NodeConfig struct {
	Name, IP         string
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
	Reflectors          map[generic.ResourceReflected]*generic.ReflectorConfig
	DisableIPReflection bool

	EnableAPIServerSupport bool
	HomeAPIServerHost      string
	HomeAPIServerPort      string

	EnableStorage              bool
	VirtualStorageClassName    string
	RemoteRealStorageClassName string

	LabelsNotReflected      []string
	AnnotationsNotReflected []string
}

// LeaseConfig configures Liqo's leader election. Without it Liqo reflects pods only.
type LeaseConfig struct {
	Enabled                              bool
	Duration, RenewDeadline, RetryPeriod time.Duration
}

// APIConfig configures the kubelet API.
type APIConfig struct {
	Port              uint16
	CertificateType   kubeletapi.CertificateType
	CertDir           string
	ClientCAFile      string
	AuthorizationMode kubeletapi.AuthorizationMode
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
