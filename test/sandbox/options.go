package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
)

// Names of the images that the sandbox knows.
const (
	// ImageOurs is this repository's virtual kubelet.
	ImageOurs = "liqo-broker-vk:dev"
	// imageOther is the image with Options.BrokerKubelet.
	imageOther = "liqo-broker-vk:other"
	// ImageStock is Liqo's own virtual kubelet, of the version in the clusters, under its name in the chart of v1.2.0.
	ImageStock = "ghcr.io/liqotech/virtual-kubelet:v1.2.0"
	// ImageWeb answers HTTP requests at port WebPort with the names of the pod and of the addresses. It needs
	// Options.Packets.
	ImageWeb = "sandbox-web:dev"
)

// Versions of Liqo and of Kubernetes that a sandbox can run. The first of each is the default; everything is tested
// with it.
const (
	LiqoVersion    = binaries.LiqoVersion
	LiqoV11Version = binaries.LiqoV11Version

	KubernetesVersion = binaries.KubernetesVersion
)

// KubernetesVersions returns the versions of Kubernetes that a sandbox can run.
func KubernetesVersions() []string {
	return append([]string{KubernetesVersion}, binaries.LaterKubernetes...)
}

// Broker is the name of the broker cluster.
const Broker = "broker"

// Consumer is the name of the i-th consumer cluster, counted from 1.
func Consumer(i int) string { return fmt.Sprintf("consumer%d", i) }

// Provider is the name of the i-th provider cluster, counted from 1.
func Provider(i int) string { return fmt.Sprintf("provider%d", i) }

// Slice is the request of a ResourceSlice; an empty quantity is not requested.
type Slice struct{ CPU, Memory, Pods string }

// Options describe a federation. Zero values mean the documented defaults.
type Options struct {
	// Name distinguishes sandboxes on one machine; default "default".
	Name string
	// Consumers is the number of consumer clusters that peer with the broker, 1 to 8.
	Consumers int
	// Providers is the number of provider clusters that the broker peers with, 1 to 16.
	Providers int
	// Networking also runs Liqo's ipam and networking controllers.
	Networking bool
	// Packets runs Liqo's gateways and fabric, and pods of ImageWeb, in network namespaces, with real packets. It
	// implies Networking, excludes ConsumerNodes and LocalNodes, and no pod is simulated.
	Packets bool
	// Containers gives each cluster a real node, CLUSTER-node: a kubelet, containerd and kube-proxy in a network namespace.
	// No pod is simulated, and all components are pods of these nodes. Pods of consumers and of the broker's cluster must
	// name their node, unless the cluster is one of LocalNodes. It excludes Packets, ConsumerNodes, Networking, RemoteIPAM
	// and Latency.
	Containers bool
	// ContainerImages are further images on all nodes, by their names. They need Containers.
	ContainerImages map[string]ContainerImage
	// Bare installs neither Liqo nor a broker, and peers nothing: that is the test's. It needs Containers. The images of
	// Liqo's control plane are on all nodes, and every node takes any pod.
	Bare bool
	// Liqo is the version of Liqo in all clusters: LiqoVersion (the default) or LiqoV11Version.
	Liqo string
	// Kubernetes is the version of all control planes: one of KubernetesVersions; the first is the default.
	Kubernetes string
	// APIServerArgs are further arguments of all API servers.
	APIServerArgs []string
	// Image is the virtual kubelet of all clusters (with BrokerNode, only of the consumers); default ImageOurs.
	Image string
	// ProviderSlice is granted to the broker by each provider; default 16 CPUs,
	// 64Gi, 600 pods.
	ProviderSlice Slice
	// ProviderSlices override ProviderSlice for single providers, by cluster name.
	ProviderSlices map[string]Slice
	// ClusterLabels are the labels that single clusters announce, by cluster name, in addition to site=NAME. Their
	// virtual nodes have these labels.
	ClusterLabels map[string]map[string]string
	// BrokerNode, if not empty, is the name of the one Node for all providers: the broker cluster then runs the broker,
	// as deploy/ installs it, and its virtual kubelets, which are ImageOurs, serve that Node.
	BrokerNode string
	// BrokerArgs are appended to the broker's arguments in deploy/. If a flag is repeated, the last value counts.
	BrokerArgs []string
	// Catalog installs the catalog in addition to the broker, with CatalogArgs appended to its arguments in deploy/.
	Catalog     bool
	CatalogArgs []string
	// ConsumerArgs are further arguments of the consumers' virtual kubelets. Only ImageOurs knows them.
	ConsumerArgs []string
	// RemoteIPAM makes the broker serve its remote IPAM, and the consumers' virtual kubelets use it.
	RemoteIPAM bool
	// BrokerKubelet is the binary of the virtual kubelets for the broker's Node, for example of another version;
	// default this repository's.
	BrokerKubelet string
	// BrokerKubeletArgs are further arguments of the virtual kubelets for the broker's Node.
	BrokerKubeletArgs []string
	// KubeletMetrics makes the virtual kubelets of consumers and of the broker serve metrics at their port "metrics".
	KubeletMetrics bool
	// ConsumerNodes gives each consumer a simulated node, CLUSTER-node, for its own pods that name this node.
	ConsumerNodes bool
	// LocalNodes are clusters that get a simulated node, CLUSTER-node, for every pod that may run there. The pods of
	// virtual kubelets prefer the host node.
	LocalNodes []string
	// MachineImages are images whose commands run on the host nodes as programs of this machine, without mounts outside
	// of /tmp and /run. The values are the default commands.
	MachineImages map[string][]string
	// DirectNetworks are further connections between the networks of clusters, each as CONSUMER:PROVIDER; they need
	// Networking.
	DirectNetworks []string
	// ConsumerSlice is granted to each consumer by the broker; default 48 CPUs,
	// 192Gi, 1800 pods.
	ConsumerSlice Slice
	// Latency is the additional time for a request from one cluster to another and its answer. A proxy in front of the
	// API server of each provider and of the broker delays data by half of it in each direction.
	Latency time.Duration
	// Progress gets one line for each step; by default there is none.
	Progress func(format string, args ...any)
}

// ContainerImage is an image with the files of ImageBusybox.
type ContainerImage struct {
	// Binary is a static program, which has its own name in the root directory; "" for none. Links are further names.
	Binary string
	Links  []string
	// Files are further files in the root directory, by their names: paths of this machine.
	Files map[string]string
	// Entrypoint and Arguments are the default command of a container.
	Entrypoint, Arguments []string
}

// Limits of one machine.
const (
	maxConsumers = 8
	maxProviders = 16
)

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// complete sets the defaults.
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

// Validate reports the errors that Up would return, before anything starts.
func (o Options) Validate() error {
	o.complete()
	return o.validate()
}

// validate reports all errors at once, by the names of the command's flags.
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
	if versions := KubernetesVersions(); !slices.Contains(versions, o.Kubernetes) {
		errs = append(errs, fmt.Errorf("--kubernetes=%q: use one of %s", o.Kubernetes, strings.Join(versions, ", ")))
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
		for _, arg := range o.BrokerArgs {
			errs = append(errs, fmt.Errorf("--broker-arg=%s: needs a broker: set --broker-node", arg))
		}
		for _, arg := range o.BrokerKubeletArgs {
			errs = append(errs, fmt.Errorf("--broker-kubelet-arg=%s: needs a broker: set --broker-node", arg))
		}
		if o.RemoteIPAM {
			errs = append(errs, errors.New("--remote-ipam: needs a broker: set --broker-node"))
		}
		if o.Catalog {
			errs = append(errs, errors.New("--catalog: needs a broker: set --broker-node"))
		}
	}
	if o.Packets && o.Liqo != LiqoVersion {
		errs = append(errs, fmt.Errorf("--packets: needs --liqo=%s, not %s", LiqoVersion, o.Liqo))
	}
	if o.Packets && (o.ConsumerNodes || len(o.LocalNodes) > 0) {
		errs = append(errs, errors.New("--packets: does not support simulated nodes (ConsumerNodes, LocalNodes)"))
	}
	if o.Containers && (o.Packets || o.ConsumerNodes) {
		errs = append(errs, errors.New("--containers: does not go together with --packets, or with simulated nodes (ConsumerNodes)"))
	}
	if len(o.ContainerImages) > 0 && !o.Containers {
		errs = append(errs, errors.New("--containers: needed by ContainerImages"))
	}
	if o.Bare && (!o.Containers || o.BrokerNode != "") {
		errs = append(errs, errors.New("--containers: needed by Bare, which allows no --broker-node"))
	}
	for _, other := range []struct {
		flag string
		set  bool
	}{
		{"remote-ipam", o.RemoteIPAM},
		{"networking", o.Networking && !o.Packets},
		{"latency", o.Latency > 0},
		{"direct-network", len(o.DirectNetworks) > 0},
		{"liqo", o.Liqo != LiqoVersion},
	} {
		if o.Containers && other.set {
			errs = append(errs, fmt.Errorf("--containers: does not support --%s", other.flag))
		}
	}
	if o.Containers && o.Kubernetes != KubernetesVersion {
		errs = append(errs, fmt.Errorf("--containers: needs --kubernetes=%s, not %s", KubernetesVersion, o.Kubernetes))
	}
	for _, arg := range o.ConsumerArgs {
		if o.Image != ImageOurs {
			errs = append(errs, fmt.Errorf("--consumer-arg=%s: not supported by --image=%s", arg, o.Image))
		}
	}
	for _, network := range o.DirectNetworks {
		if !o.Networking && !o.Containers {
			errs = append(errs, fmt.Errorf("--direct-network=%s: start the sandbox with --networking", network))
		}
		if consumer, provider := o.network(network); consumer == "" || provider == "" {
			errs = append(errs,
				fmt.Errorf("--direct-network=%s: name a consumer and a provider, such as %s:%s", network, Consumer(1), Provider(1)))
		}
	}
	return errors.Join(errs...)
}

// network returns the names of a consumer and of a provider to connect, empty for a cluster that does not exist.
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
