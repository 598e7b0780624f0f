package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
)

// Names of the images that the sandbox knows.
const (
	// ImageOurs is this repository's virtual kubelet.
	ImageOurs = "liqo-broker-vk:dev"
	// imageOther is that of Options.BrokerKubelet.
	imageOther = "liqo-broker-vk:other"
	// ImageStock is Liqo's own, of the version that the clusters have, under the name that the chart of v1.2.0 gives it.
	ImageStock = "ghcr.io/liqotech/virtual-kubelet:v1.2.0"
	// ImageWeb answers HTTP requests at port WebPort with the names of the pod and of the addresses. With Options.Packets only.
	ImageWeb = "sandbox-web:dev"
)

// Versions of Liqo and of Kubernetes that a sandbox can have. Everything is tested with the first of each, which is the default.
const (
	LiqoVersion    = binaries.LiqoVersion
	LiqoV11Version = binaries.LiqoV11Version

	KubernetesVersion      = binaries.KubernetesVersion
	KubernetesLaterVersion = binaries.KubernetesLaterVersion
)

// Broker is the name of the broker cluster.
const Broker = "broker"

// Consumer is the name of the i-th consumer cluster, counted from 1.
func Consumer(i int) string { return fmt.Sprintf("consumer%d", i) }

// Provider is the name of the i-th provider cluster, counted from 1.
func Provider(i int) string { return fmt.Sprintf("provider%d", i) }

// Slice is what a ResourceSlice asks for; a quantity left empty is not asked for.
type Slice struct{ CPU, Memory, Pods string }

// Options say what federation to make. Where a default is named, the zero value
// means it.
type Options struct {
	// Name distinguishes sandboxes on one machine; default "default".
	Name string
	// Consumers is how many consumer clusters peer with the broker, 1 to 8.
	Consumers int
	// Providers is how many provider clusters the broker peers with, 1 to 16.
	Providers int
	// Networking also runs Liqo's ipam and networking controllers.
	Networking bool
	// Packets has the clusters run Liqo's gateways and fabric, and pods of ImageWeb, in network namespaces: their packets
	// are real. It implies Networking, excludes ConsumerNodes and LocalNodes, and no pod is simulated.
	Packets bool
	// Liqo is the version of Liqo in all clusters: LiqoVersion (the default) or LiqoV11Version.
	Liqo string
	// Kubernetes is the version of all control planes: KubernetesVersion (the default) or KubernetesLaterVersion.
	Kubernetes string
	// APIServerArgs are further arguments of all API servers.
	APIServerArgs []string
	// Image is the virtual kubelet of all clusters (with BrokerNode, of the
	// consumers); default ImageOurs.
	Image string
	// ProviderSlice is granted to the broker by each provider; default 16 CPUs,
	// 64Gi, 600 pods.
	ProviderSlice Slice
	// ProviderSlices are those of single providers, by cluster name.
	ProviderSlices map[string]Slice
	// ClusterLabels are what single clusters say of themselves, by cluster name,
	// beside site=NAME: their virtual nodes bear these labels.
	ClusterLabels map[string]map[string]string
	// BrokerNode, if not empty, is the name of the one Node that stands for all
	// providers: the broker cluster then runs the broker, as deploy/ installs it,
	// and its virtual kubelets, which are ImageOurs, serve that Node.
	BrokerNode string
	// BrokerArgs are appended to the broker's arguments in deploy/: of a flag given
	// twice, the last counts.
	BrokerArgs []string
	// Catalog installs the catalog beside the broker, with CatalogArgs appended to
	// its arguments in deploy/.
	Catalog     bool
	CatalogArgs []string
	// ConsumerArgs are further arguments of the consumers' virtual kubelets, which
	// must be ImageOurs to know them.
	ConsumerArgs []string
	// RemoteIPAM has the broker serve its remote IPAM, and the consumers' virtual
	// kubelets ask it.
	RemoteIPAM bool
	// BrokerKubelet is the binary of the virtual kubelets of the broker's Node, such as
	// one of another version; default this repository's.
	BrokerKubelet string
	// BrokerKubeletArgs are further arguments of the virtual kubelets of the
	// broker's Node.
	BrokerKubeletArgs []string
	// KubeletMetrics has the virtual kubelets of consumers and of the broker serve
	// metrics at their port "metrics".
	KubeletMetrics bool
	// ConsumerNodes gives each consumer a simulated node, CLUSTER-node, for pods of
	// its own that name it.
	ConsumerNodes bool
	// LocalNodes are clusters that get a simulated node, CLUSTER-node, for every pod that may run there. The pods of
	// virtual kubelets prefer the host node.
	LocalNodes []string
	// MachineImages are images whose commands the host nodes run as programs of this machine, without mounts outside of /tmp
	// and /run, with the commands of containers that name none.
	MachineImages map[string][]string
	// DirectNetworks are further connections between the networks of clusters,
	// each as CONSUMER:PROVIDER; they need Networking.
	DirectNetworks []string
	// ConsumerSlice is granted to each consumer by the broker; default 48 CPUs,
	// 192Gi, 1800 pods.
	ConsumerSlice Slice
	// Latency is how long a request from one cluster to another and its answer take longer than they would on one
	// machine. A proxy before the API server of each provider and of the broker holds what it gets for half of it.
	Latency time.Duration
	// Progress gets one line for each step; by default there is none.
	Progress func(format string, args ...any)
}

// Limits of what one machine carries.
const (
	maxConsumers = 8
	maxProviders = 16
)

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// complete fills in defaults.
func (o *Options) complete() {
	setDefault(&o.Name, "default")
	setDefault(&o.Image, ImageOurs)
	setDefault(&o.Liqo, LiqoVersion)
	setDefault(&o.Kubernetes, KubernetesVersion)
	setDefault(&o.ProviderSlice, Slice{CPU: "16", Memory: "64Gi", Pods: "600"})
	setDefault(&o.ConsumerSlice, Slice{CPU: "48", Memory: "192Gi", Pods: "1800"})
	o.Networking = o.Networking || o.Packets
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports what Up would refuse, before anything starts.
func (o Options) Validate() error {
	o.complete()
	return o.validate()
}

// validate reports every fault at once, by the name of the command's flag.
func (o *Options) validate() error {
	var errs []error
	if !validName.MatchString(o.Name) {
		errs = append(errs, fmt.Errorf("--name=%q: use lower-case letters, digits and dashes, at most 32", o.Name))
	}
	if o.Consumers < 1 || o.Consumers > maxConsumers {
		errs = append(errs, fmt.Errorf("--consumers=%d: use 1 to %d", o.Consumers, maxConsumers))
	}
	if o.Providers < 1 || o.Providers > maxProviders {
		errs = append(errs, fmt.Errorf("--providers=%d: use 1 to %d", o.Providers, maxProviders))
	}
	if o.Image != ImageOurs && o.Image != ImageStock {
		errs = append(errs, fmt.Errorf("--image=%q: use %s or %s", o.Image, ImageOurs, ImageStock))
	}
	if o.Kubernetes != KubernetesVersion && o.Kubernetes != KubernetesLaterVersion {
		errs = append(errs, fmt.Errorf("--kubernetes=%q: use %s or %s", o.Kubernetes, KubernetesVersion, KubernetesLaterVersion))
	}
	if o.Liqo != LiqoVersion && o.Liqo != LiqoV11Version {
		errs = append(errs, fmt.Errorf("--liqo=%q: use %s or %s", o.Liqo, LiqoVersion, LiqoV11Version))
	}
	if o.Latency < 0 {
		errs = append(errs, fmt.Errorf("--latency=%s: use 0 or more", o.Latency))
	}
	if o.BrokerNode != "" {
		for _, fault := range validation.IsDNS1123Label(o.BrokerNode) {
			errs = append(errs, fmt.Errorf("--broker-node=%q: %s", o.BrokerNode, fault))
		}
	} else {
		for _, arg := range append(o.BrokerArgs, o.BrokerKubeletArgs...) {
			errs = append(errs, fmt.Errorf("--broker-arg=%s: there is no broker without --broker-node", arg))
		}
		if o.RemoteIPAM {
			errs = append(errs, errors.New("--remote-ipam: there is no broker without --broker-node"))
		}
		if o.Catalog {
			errs = append(errs, errors.New("--catalog: there is no broker without --broker-node"))
		}
	}
	if o.Packets && o.Liqo != LiqoVersion {
		errs = append(errs, fmt.Errorf("--packets: the gateways are those of %s, not %s", LiqoVersion, o.Liqo))
	}
	if o.Packets && (o.ConsumerNodes || len(o.LocalNodes) > 0) {
		errs = append(errs, errors.New("--packets: no node of a consumer is simulated"))
	}
	for _, arg := range o.ConsumerArgs {
		if o.Image != ImageOurs {
			errs = append(errs, fmt.Errorf("--consumer-arg=%s: %s does not know it", arg, o.Image))
		}
	}
	for _, network := range o.DirectNetworks {
		if !o.Networking {
			errs = append(errs, fmt.Errorf("--direct-network=%s: start the sandbox with --networking", network))
		}
		if consumer, provider := o.network(network); consumer == "" || provider == "" {
			errs = append(errs, fmt.Errorf("--direct-network=%s: name a consumer and a provider, such as %s:%s", network, Consumer(1), Provider(1)))
		}
	}
	return errors.Join(errs...)
}

// network returns the names of a consumer and of a provider that are connected,
// empty for a cluster that does not exist.
func (o *Options) network(name string) (consumer, provider string) {
	a, b, _ := strings.Cut(name, ":")
	for i := range o.Consumers {
		if Consumer(i+1) == a {
			consumer = a
		}
	}
	for i := range o.Providers {
		if Provider(i+1) == b {
			provider = b
		}
	}
	return consumer, provider
}
