package liqov0

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/controlplane"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/kwok"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// Cluster is a running cluster.
type Cluster struct {
	Spec
	// Config is the administrator's configuration.
	Config *rest.Config
	Kube   kubernetes.Interface
	// Client knows only Kubernetes' types: objects of Liqo v0.x are unstructured.
	Client client.Client

	federation *Federation
	index      int
	plane      *controlplane.Cluster
	agent      *nodeagent.Agent
	ports      liqochart.PortsV0
}

// ID returns the cluster's id in Liqo. Liqo v0.x uses its first five characters in names.
func (c *Cluster) ID() string { return fmt.Sprintf("%d0000000-0000-4000-8000-000000000000", c.index) }

// RemoteNamespace returns the name of the remote namespaces to which a namespace of the cluster is offloaded
// (UniqueName in pkg/utils/foreignCluster).
func (c *Cluster) RemoteNamespace(namespace string) string {
	hash := sha256.Sum256([]byte(c.ID()))
	return namespace + "-" + c.Name + "-" + hex.EncodeToString(hash[:3])
}

// VirtualNode returns the name of the virtual node for another cluster.
func (c *Cluster) VirtualNode(remote *Cluster) string { return "liqo-" + remote.Name }

// IPAM returns the address of liqo-network-manager's IPAM.
func (c *Cluster) IPAM() string { return fmt.Sprintf("127.0.0.1:%d", c.ports.IPAM) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig() }

func (c *Cluster) dir(elem ...string) string {
	return filepath.Join(append([]string{c.federation.dir, "clusters", c.Name}, elem...)...)
}

func (c *Cluster) serviceCIDR() string { return fmt.Sprintf("10.%d.0.0/16", 100+c.index) }

// start starts the control plane and Liqo.
func (c *Cluster) start(ctx context.Context) error {
	f := c.federation
	if err := os.MkdirAll(c.dir("logs"), 0o700); err != nil {
		return err
	}
	var err error
	if c.plane, err = controlplane.New(controlplane.Config{
		Name: c.Name, Dir: c.dir(), Binary: filepath.Join(f.bin, binaries.Kube), ServiceCIDR: c.serviceCIDR(),
		Group: f.group, Ports: f.ports,
	}); err != nil {
		return err
	}
	if err := c.plane.Start(ctx); err != nil {
		return err
	}
	if c.Config, err = c.plane.RESTConfig(); err != nil {
		return err
	}
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	if err := c.installLiqo(ctx); err != nil {
		return err
	}
	if err := c.runPods(ctx); err != nil {
		return err
	}
	return c.WaitLiqo(ctx)
}

// runPods starts the node for the cluster's components, and the simulated node.
func (c *Cluster) runPods(ctx context.Context) error {
	f := c.federation
	node := c.Name + "-host"
	pair, err := c.plane.NewServingCert(node, "127.0.0.1")
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	// Liqo v0.x gives the pods of virtual kubelets no tolerations: if the cluster has no other node, this one must have
	// no taint.
	c.agent = nodeagent.New(nodeagent.Config{
		Cluster: c.Name, NodeName: node, Client: c.Kube, APIPort: c.plane.APIPort(), Untainted: !c.Nodes,
		Contain: filepath.Join(f.bin, binaries.Contain), Dir: c.dir("pods"), LogDir: c.dir("logs"),
		Images: f.images, Group: f.group, Ports: f.ports, Certificate: certificate, ClientCA: c.plane.CA(),
	})
	if err := c.agent.Register(ctx); err != nil {
		return err
	}
	f.background.Go(func() error { return c.agent.Run(f.runCtx) })
	if !c.Nodes {
		return nil
	}
	port, err := f.ports.Free()
	if err != nil {
		return err
	}
	if _, err := kwok.Start(ctx, kwok.Config{
		Cluster: c.plane, Name: c.Name, Binary: filepath.Join(f.bin, binaries.Kwok), Dir: c.dir("kwok"),
		PodCIDR: simulatedPods, Port: port, ForwardPort: c.plane.EtcdPort(), Group: f.group,
	}); err != nil {
		return err
	}
	return kwok.AddNode(ctx, c.Kube, c.Name+"-node", corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("2000"),
	}, nil)
}

// AppendPodLog adds a line to the log of every simulated pod of the cluster.
func (c *Cluster) AppendPodLog(line string) error { return kwok.AppendLog(c.dir("kwok"), line) }

// Log returns the last lines of the newest log of a component, such as liqo-controller-manager.
func (c *Cluster) Log(component string, lines int) string {
	files, _ := filepath.Glob(c.dir("logs", component+"-*.log"))
	if len(files) == 0 {
		return "  no log in " + c.dir("logs")
	}
	return files[len(files)-1] + ":\n" + proc.Tail(files[len(files)-1], lines)
}

const pollEvery = 50 * time.Millisecond

// poll calls check until it returns nil or ctx ends; then it returns the last error.
func poll(ctx context.Context, check func(context.Context) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// ClientConfig returns the configuration of a client that authenticates as the given user with a certificate of the
// cluster's CA.
func (c *Cluster) ClientConfig(user string, groups ...string) (*rest.Config, error) {
	return c.plane.NewClientConfig(user, groups...)
}
