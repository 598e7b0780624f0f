package sandbox

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/containers"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/controlplane"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/kwok"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// Role of a cluster in the federation.
type Role string

// The roles.
const (
	RoleConsumer Role = "consumer"
	RoleBroker   Role = "broker"
	RoleProvider Role = "provider"
)

// Cluster is one running cluster of a sandbox.
type Cluster struct {
	// Name is also the cluster's id in Liqo.
	Name string
	Role Role
	// Config is the administrator's configuration.
	Config *rest.Config
	Kube   kubernetes.Interface
	// Client knows the types of Kubernetes, of Liqo and of the broker.
	Client client.Client

	sandbox *Sandbox
	index   int
	plane   *controlplane.Cluster
	agent   *nodeagent.Agent
	kwok    *proc.Process
	// node is the network of the host node; nil unless packets are real. proxy is the kube-proxy of the node whose
	// packets are, or of the real one.
	node  *packets.Node
	proxy *proc.Process
	// machine is the real node, machineNetwork its network, and pods its pods; nil unless containers are real.
	machine        *containers.Machine
	machineNetwork *packets.Node
	pods           *nodePods
	ports          liqochart.HostPorts
	// distance is nil without latency.
	distance *distance
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, authv1beta1.AddToScheme, liqov1beta1.AddToScheme,
		ipamv1alpha1.AddToScheme, networkingv1beta1.AddToScheme, offloadingv1beta1.AddToScheme,
		brokeringv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

func (c *Cluster) dir(elem ...string) string {
	return filepath.Join(append([]string{c.sandbox.dir, "clusters", c.Name}, elem...)...)
}

// ServingCertificate returns a certificate with which a process can pretend to be the API server.
func (c *Cluster) ServingCertificate() (tls.Certificate, error) {
	return c.certificate("kube-apiserver")
}

func (c *Cluster) certificate(name string) (tls.Certificate, error) {
	pair, err := c.plane.NewServingCert(name, "127.0.0.1")
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}

// startPlane starts the control plane and creates the clients.
func (c *Cluster) startPlane(ctx context.Context) error {
	s := c.sandbox
	if err := os.MkdirAll(c.dir("logs"), 0o700); err != nil {
		return err
	}
	var grace time.Duration
	if c.Role == RoleProvider && !s.opts.Containers {
		// A kubelet reports its pods Ready again after an outage, KWOK does not: a provider whose API server was frozen
		// would keep unready pods.
		grace = time.Hour
	}
	egress, names := "", []string(nil)
	if s.opts.Containers {
		var err error
		if egress, err = c.serveEgress(); err != nil {
			return err
		}
		names = []string{c.machineNetwork.Address.String()}
	}
	plane, err := controlplane.New(controlplane.Config{
		Egress: egress, Names: names,
		NodeGracePeriod: grace, Audited: c.audited(),
		Name: c.Name, Dir: c.dir(), Binary: filepath.Join(s.kubernetes, binaries.Kube), APIServerArgs: s.opts.APIServerArgs,
		// Service ranges are distinct, because Liqo does not remap them.
		ServiceCIDR: c.ServiceCIDR(), Group: s.group, Ports: s.ports,
	})
	if err != nil {
		return err
	}
	c.plane = plane
	if err := plane.Start(ctx); err != nil {
		return err
	}
	if c.Config, err = plane.RESTConfig(); err != nil {
		return err
	}
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	return c.keepAway()
}

// installLiqo applies the CRDs and the chart.
func (c *Cluster) installLiqo(ctx context.Context, objects liqoObjects) error {
	if err := c.installCRDs(ctx, objects.crds); err != nil {
		return err
	}
	// Created only now: its mapper reads discovery once for each group.
	var err error
	if c.Client, err = client.New(c.Config, client.Options{Scheme: newScheme()}); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: liqochart.Namespace}}
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: StorageClass},
		Provisioner:       "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	for _, o := range []client.Object{ns, class} {
		if err := c.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	for _, p := range []*int{&c.ports.Webhook, &c.ports.WebhookHealth, &c.ports.ControllerManagerHealth, &c.ports.IPAM} {
		if *p, err = c.sandbox.ports.Free(); err != nil {
			return err
		}
	}
	cert, err := c.plane.NewServingCert("liqo-webhook", "127.0.0.1", "localhost")
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: liqochart.WebhookSecret, Namespace: liqochart.Namespace},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: cert.Cert, corev1.TLSPrivateKeyKey: cert.Key},
	}
	if err := c.Client.Create(ctx, secret); err != nil {
		return err
	}
	rendered, err := liqochart.Render(objects.source, c.chartValues())
	if err != nil {
		return err
	}
	rendered = liqochart.Keep(rendered, c.node != nil)
	if c.machineNetwork == nil {
		if rendered, err = liqochart.Adapt(rendered, c.ports, c.plane.CA()); err != nil {
			return err
		}
	}
	if c.sandbox.opts.KubeletMetrics {
		if err := measured(rendered); err != nil {
			return err
		}
	}
	if err := liqochart.Apply(ctx, c.Client, fieldOwner, rendered); err != nil {
		return fmt.Errorf("install Liqo: %w", err)
	}
	for _, file := range c.kubeletRoles() {
		if err := c.ApplyManifests(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// kubeletRoles returns the ClusterRoles of the virtual kubelets, with the files of deploy/ that contain them.
func (c *Cluster) kubeletRoles() map[string]string {
	roles := map[string]string{"liqo-broker-vk-kubelet-auth": "virtual-kubelet-auth.yaml"}
	if c.Role == RoleConsumer {
		roles["liqo-broker-vk-addresses"] = "virtual-kubelet-addresses.yaml"
	}
	return roles
}

// bindKubeletRoles performs the step of docs/virtual-kubelet.md for one VirtualNode, before its ServiceAccount exists.
func (c *Cluster) bindKubeletRoles(ctx context.Context, tenant, virtualNode string) error {
	for role := range c.kubeletRoles() {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-" + tenant + "-" + virtualNode},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: virtualNode}},
		}
		if err := client.IgnoreAlreadyExists(c.Client.Create(ctx, binding)); err != nil {
			return fmt.Errorf("ClusterRoleBinding %s: %w", binding.Name, err)
		}
	}
	return nil
}

// runPods starts the real node, or the node agent, and KWOK if the cluster has a simulated node. With a real node the
// agent has no pods.
func (c *Cluster) runPods(ctx context.Context) error {
	s := c.sandbox
	certificate, err := c.certificate(c.HostNode())
	if err != nil {
		return err
	}
	c.agent = nodeagent.New(nodeagent.Config{
		Cluster: c.Name, NodeName: c.HostNode(), Client: c.Kube, APIPort: c.plane.APIPort(),
		Contain: filepath.Join(s.bin, binaries.Contain), Dir: c.dir("pods"), LogDir: c.dir("logs"),
		Images: s.images, Group: s.group, Ports: s.ports, Certificate: certificate, ClientCA: c.plane.CA(), Network: c.node,
	})
	if s.opts.Containers {
		return c.runMachine(ctx)
	}
	if err := c.agent.Register(ctx); err != nil {
		return err
	}
	s.background.Go(func() error { return c.agent.Run(s.runCtx) })
	if c.node != nil {
		return c.runProxy(ctx, c.node, c.HostNode())
	}
	if c.Role == RoleProvider || c.Role == RoleConsumer && s.opts.ConsumerNodes || c.hasLocalNode() {
		return c.runKwok(ctx)
	}
	return nil
}

func (c *Cluster) runKwok(ctx context.Context) error {
	s := c.sandbox
	port, err := s.ports.Free()
	if err != nil {
		return err
	}
	c.kwok, err = kwok.Start(ctx, kwok.Config{
		Cluster: c.plane, Name: c.Name, Binary: filepath.Join(s.bin, binaries.Kwok), Dir: c.dir("kwok"),
		PodCIDR: fmt.Sprintf("10.244.%d.1/22", 4*c.index), Port: port, ForwardPort: c.plane.EtcdPort(), Group: s.group,
	})
	if err != nil {
		return err
	}
	if err := c.AddNode(ctx, c.Name+"-node", nil, nil); err != nil || c.Role == RoleProvider {
		return err
	}
	taint := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":%q}]}}`, localTaint, c.localEffect())
	_, err = c.Kube.CoreV1().Nodes().Patch(ctx, c.Name+"-node", types.StrategicMergePatchType, taint, metav1.PatchOptions{})
	return err
}

// localTaint is the taint of nodes for the pods of consumers and of the broker's cluster, other than the components.
const localTaint = "sandbox/simulated"

// localEffect is the effect of localTaint. The cluster's own components run on the host node, which they tolerate: in
// kube-scheduler's scores taints have more weight than free resources.
func (c *Cluster) localEffect() corev1.TaintEffect {
	if c.hasLocalNode() {
		return corev1.TaintEffectPreferNoSchedule
	}
	return corev1.TaintEffectNoSchedule // Only pods that name this node run there.
}

func (c *Cluster) hasLocalNode() bool {
	return c.sandbox.opts.Bare || slices.Contains(c.sandbox.opts.LocalNodes, c.Name)
}

// AddNode adds a simulated node to a cluster that has one, with 64 CPUs, 256Gi, 2000 pods
// and the extra resources, such as GPUs.
func (c *Cluster) AddNode(ctx context.Context, name string, extra corev1.ResourceList, labels map[string]string) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("2000"),
	}
	maps.Copy(capacity, extra)
	return kwok.AddNode(ctx, c.Kube, name, capacity, labels)
}

// AppendPodLog adds a line to the log of every simulated pod of the cluster.
func (c *Cluster) AppendPodLog(line string) error { return kwok.AppendLog(c.dir("kwok"), line) }

// waitLiqo waits until every Deployment of Liqo is available.
func (c *Cluster) waitLiqo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	late := ""
	err := poll(ctx, func(ctx context.Context) error {
		var list appsv1.DeploymentList
		if err := c.Client.List(ctx, &list, client.InNamespace(liqochart.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			d := &list.Items[i]
			if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas < *d.Spec.Replicas {
				late = d.Name
				return fmt.Errorf("%s: %d of %d replicas available", d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w\nlast lines of its log:\n%s", err, c.tailLog(ctx, late))
	}
	return nil
}

// tailLog returns the last lines of the newest log of a component.
func (c *Cluster) tailLog(ctx context.Context, component string) string {
	if c.machine != nil {
		return c.podLog(ctx, component)
	}
	files, _ := filepath.Glob(c.dir("logs", component+"-*.log"))
	if len(files) == 0 {
		return "  no log yet in " + c.dir("logs")
	}
	return files[len(files)-1] + ":\n" + proc.Tail(files[len(files)-1], 15)
}

func tenantNamespace(remote string) string { return "liqo-tenant-" + remote }

// HostNode is the Node that runs the cluster's own components.
func (c *Cluster) HostNode() string { return c.Name + "-host" }

// ClientConfig returns the configuration of a client that authenticates as the given user with a certificate of the
// cluster's CA.
func (c *Cluster) ClientConfig(user string, groups ...string) (*rest.Config, error) {
	return c.plane.NewClientConfig(user, groups...)
}

// DefaultToken returns a function for the configuration of a client that authenticates as ServiceAccount default of
// namespace default, which has no permissions.
func (c *Cluster) DefaultToken(ctx context.Context) func() (*rest.Config, error) {
	return func() (*rest.Config, error) {
		token, err := c.Kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
			CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		config := rest.AnonymousClientConfig(c.Config)
		config.BearerToken = token.Status.Token
		return config, nil
	}
}
