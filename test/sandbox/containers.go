package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/containers"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/registry"
)

// ImageBusybox has a shell and the usual programs. It needs Options.Containers.
const ImageBusybox = containers.BusyboxImage

// Images in the registry that all nodes of a sandbox with containers pull from, with the files of ImageBusybox.
const (
	// ImagePublic can be pulled by everyone, ImagePrivate with RegistryUser and RegistryPassword.
	ImagePublic  = containers.RegistryName + "/public/busybox:1"
	ImagePrivate = containers.RegistryName + "/private/busybox:1"
	// RegistryName is the registry in the names of images, and in pull secrets.
	RegistryName     = containers.RegistryName
	RegistryUser     = registry.User
	RegistryPassword = registry.Password
)

// Installers builds the programs with which readers of the documents install Liqo and the broker, unless they are in the
// cache: liqoctl, helm3 and helm4. It returns the directory that contains them.
func Installers(ctx context.Context, progress func(format string, args ...any)) (string, error) {
	return binaries.EnsureInstallers(ctx, progress)
}

// LiqoSource returns the directory with the source of Liqo.
func LiqoSource(ctx context.Context) (string, error) { return binaries.LiqoSource(ctx, LiqoVersion) }

// ContainersPossible returns nil if this process may start a sandbox with containers, else the reason.
func ContainersPossible() error { return containers.Possible() }

// prepareContainers builds the programs of real nodes.
func (s *Sandbox) prepareContainers(ctx context.Context) (err error) {
	if err := containers.Possible(); err != nil {
		return err
	}
	if s.nodes, err = binaries.EnsureContainers(ctx, s.say); err != nil {
		return err
	}
	s.proxy = filepath.Join(s.nodes, binaries.KubeProxy)
	if err := s.writeImages(); err != nil {
		return err
	}
	return s.runRegistry(ctx)
}

// unused returns the images that no pod of this sandbox has. Each would cost every node a copy.
func (s *Sandbox) unused() map[string]bool {
	return map[string]bool{
		"ghcr.io/liqotech/ipam:" + s.opts.Liqo: true, // It belongs to the networking module, which is off.
		ImageStock:                             s.opts.Image != ImageStock,
		ImageOurs:                              s.opts.Bare,
		imageOther:                             s.opts.BrokerKubelet == "",
	}
}

// writeImages writes the archive of the images that every node has.
func (s *Sandbox) writeImages() error {
	unused := s.unused()
	programs := map[string]containers.Program{
		ImageWeb:     {Binary: filepath.Join(s.nodes, binaries.Web), Paths: []string{"web"}},
		imageCoreDNS: {Binary: filepath.Join(s.nodes, binaries.CoreDNS), Paths: []string{"coredns"}},
	}
	for image, of := range s.images {
		if of.Machine || unused[image] {
			continue
		}
		name, _ := splitImage(image)
		// Liqo's charts and controllers name the programs by /usr/bin and the last part of the image's name.
		program := containers.Program{Binary: of.Binary, Paths: []string{"usr/bin/" + path.Base(name)}}
		if image == ImageOurs || image == imageOther {
			program.Paths = []string{"usr/bin/liqo-broker-vk", "usr/bin/virtual-kubelet"} // As in Dockerfile.
			program.User = "65532:65532"
		}
		programs[image] = program
	}
	for name, of := range s.opts.ContainerImages {
		program := containers.Program{
			Binary: of.Binary, Shell: true, Files: of.Files, Entrypoint: of.Entrypoint, Arguments: of.Arguments,
		}
		if of.Binary != "" {
			program.Paths = append([]string{filepath.Base(of.Binary)}, of.Links...)
		}
		programs[name] = program
	}
	dir := filepath.Join(s.dir, "images")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	s.archive = filepath.Join(dir, "images.tar")
	return containers.WriteImages(s.archive, programs)
}

// runRegistry serves the registry, and pushes its images.
func (s *Sandbox) runRegistry(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("registry of images: %w", err)
	}
	s.registry = listener.Addr().String()
	s.serve(registry.New(), listener)
	for _, ref := range []string{ImagePublic, ImagePrivate} {
		// Each has an ID of its own: a kubelet that has pulled an image with credentials asks the registry again for
		// each pod with an image of that ID, also one that was imported (pkg/kubelet/images/pullmanager of Kubernetes).
		image, err := containers.Busybox(ref)
		if err != nil {
			return err
		}
		if err := registry.Push(ctx, s.registry, strings.TrimPrefix(ref, RegistryName+"/"), image); err != nil {
			return err
		}
	}
	return nil
}

// cgroupOf is the name of the cgroups of a sandbox's nodes, without the name of the cluster.
func cgroupOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "liqo-broker-vk-" + hex.EncodeToString(sum[:])[:12] + "-"
}

// registryPort is where the runtime of a node finds the registry, at the address of the node.
const registryPort = 5000

// apiServerPort is where pods and the Service "kubernetes" find the API server, at the address of the node.
const apiServerPort = 6443

// apiServer is the address of the API server for pods, and for other clusters.
func (c *Cluster) apiServer() string {
	return net.JoinHostPort(c.machineNetwork.Address.String(), fmt.Sprint(apiServerPort))
}

// machineLabel is a label of real nodes.
const machineLabel = "sandbox.liqo-broker-vk/node"

// runMachine starts the real node of the cluster, and kube-proxy there.
func (c *Cluster) runMachine(ctx context.Context) (err error) {
	s := c.sandbox
	if err := c.runProxy(ctx, c.machineNetwork, c.MachineNode()); err != nil {
		return err
	}
	if err := c.machineNetwork.Forward(c.apiServer(), fmt.Sprintf("127.0.0.1:%d", c.plane.APIPort())); err != nil {
		return err
	}
	images := net.JoinHostPort(c.machineNetwork.Address.String(), fmt.Sprint(registryPort))
	if err := c.machineNetwork.Forward(images, s.registry); err != nil {
		return fmt.Errorf("registry of images: %w", err)
	}
	if err := c.publishAPIServer(ctx); err != nil {
		return err
	}
	cfg := containers.Config{
		Cluster: c.plane, ClusterName: c.Name, Name: c.MachineNode(), Dir: c.dir("node"), LogDir: c.dir("logs"), Group: s.group,
		Kubelet: filepath.Join(s.nodes, binaries.Kubelet), Node: filepath.Join(s.nodes, binaries.Node),
		Images: s.archive,
		Cgroup: cgroupOf(s.dir) + c.Name, Network: c.machineNetwork,
		PodCIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(c.index), 0}), 24), DNS: c.dnsAddress(),
		Labels: []string{machineLabel + "=true"}, Registry: images, RegistryNames: []string{RegistryName, s.registry},
	}
	if c.Role != RoleProvider {
		cfg.Taints = []string{localTaint + "=:" + string(c.localEffect())}
	}
	if c.machine, err = containers.Start(ctx, cfg); err != nil {
		return err
	}
	s.background.Go(func() error { return c.balanceLoads(s.runCtx) })
	if err := c.WaitNodeReady(ctx, c.MachineNode()); err != nil {
		return err
	}
	if err := c.watchPods(ctx); err != nil {
		return err
	}
	return c.runDNS(ctx)
}

// imageCoreDNS is the image in dns.yaml.
const imageCoreDNS = "sandbox.local/coredns:dev"

// dnsAddress is the ClusterIP of the name server of pods: the tenth address of the range, as kubeadm has it.
func (c *Cluster) dnsAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(100 + c.index), 0, 10})
}

// runDNS runs CoreDNS in a pod of the real node, and waits until it is ready.
func (c *Cluster) runDNS(ctx context.Context) error {
	objects, err := liqochart.ParseFile(filepath.Join(binaries.ProductRoot(), "test", "sandbox", "dns.yaml"))
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() == "Service" {
			if err := unstructured.SetNestedField(o.Object, c.dnsAddress().String(), "spec", "clusterIP"); err != nil {
				return err
			}
		}
	}
	if err := liqochart.Apply(ctx, c.Client, fieldOwner+"-dns", objects); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		dns, err := c.Kube.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && dns.Status.ReadyReplicas == 0 {
			err = fmt.Errorf("%s: CoreDNS is not ready", c.Name)
		}
		return err
	})
}

// MachineNode is the real Node of a cluster with containers.
func (c *Cluster) MachineNode() string { return c.Name + "-node" }

// Runtime is the path of the CRI socket of the cluster's real node.
func (c *Cluster) Runtime() string { return c.machine.Socket() }

// balanceLoads gives each Service of type LoadBalancer the address of the node until ctx ends, as the load balancers of
// small distributions do. kube-proxy forwards its ports there.
func (c *Cluster) balanceLoads(ctx context.Context) error {
	set := func(service *corev1.Service) {
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 {
			return
		}
		service = service.DeepCopy()
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: c.machineNetwork.Address.String()}}
		// A conflict means that there will be another event.
		_, _ = c.Kube.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
	}
	informer := informers.NewSharedInformerFactory(c.Kube, time.Minute).Core().V1().Services().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { set(o.(*corev1.Service)) }, UpdateFunc: func(_, o any) { set(o.(*corev1.Service)) },
	})
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// APIServer is the URL of the API server for pods, and for other clusters, of a sandbox with containers.
func (c *Cluster) APIServer() string { return c.url() }

// ServiceCIDR is the range of the cluster's Services.
func (c *Cluster) ServiceCIDR() string { return fmt.Sprintf("10.%d.0.0/16", 100+c.index) }

// Registry is the address (HOST:PORT) of the registry of a sandbox with containers. Nodes pull images of this name, too.
func (s *Sandbox) Registry() string { return s.registry }

// podLog returns the last lines of the logs of the pods of a component.
func (c *Cluster) podLog(ctx context.Context, component string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // A wait has just ended.
	defer cancel()
	pods, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !strings.HasPrefix(pod.Name, component+"-") || pod.Spec.NodeName != c.MachineNode() {
			continue
		}
		log, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr.To(int64(15))}).DoRaw(ctx)
		if err != nil {
			log = []byte(err.Error())
		}
		fmt.Fprintf(&text, "%s (%s):\n%s\n", pod.Name, pod.Status.Phase, log)
	}
	return text.String()
}

// publishAPIServer writes the endpoint of the Service "kubernetes". The API server does not: its own address is a
// loopback one, which no endpoint may have.
func (c *Cluster) publishAPIServer(ctx context.Context) error {
	_, err := c.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{c.machineNetwork.Address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{
			Name: ptr.To("https"), Port: ptr.To(int32(apiServerPort)), Protocol: ptr.To(corev1.ProtocolTCP),
		}},
	}, metav1.CreateOptions{})
	return err
}

// serveEgress serves an HTTP proxy through which the API server reaches the node, its pods and Services. It returns its
// socket.
func (c *Cluster) serveEgress() (string, error) {
	s := c.sandbox
	// In the directory of the sandbox, because the path of a socket has at most 107 bytes.
	socket := filepath.Join(s.dir, fmt.Sprintf("egress%d.sock", c.index))
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return "", err
	}
	s.serve(http.HandlerFunc(c.connectEgress), listener)
	return socket, nil
}

func (c *Cluster) connectEgress(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "use CONNECT", http.StatusMethodNotAllowed)
		return
	}
	there, err := c.machineNetwork.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer here.Close()
	stop := context.AfterFunc(c.sandbox.runCtx, func() { _ = here.Close(); _ = there.Close() })
	defer stop()
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(there, buffered) // Either end may close.
		_ = there.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(here, there)
	_ = here.(*net.UnixConn).CloseWrite()
	<-done
}
