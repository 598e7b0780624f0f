package controlplane

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/ports"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// kubeletClientName is the user name with which the API server calls kubelets.
const kubeletClientName = "kube-apiserver-kubelet-client"

// startTimeout bounds how long one component may take to become ready.
const startTimeout = 2 * time.Minute

// Config describes a cluster.
type Config struct {
	Name string
	// Dir is the cluster's own directory, which must exist.
	Dir string
	// Binary is the multi-call binary of cmd/kube.
	Binary string
	// ServiceCIDR is the range of ClusterIPs, for example 10.96.0.0/16.
	ServiceCIDR string
	// NodeGracePeriod is how long a node may be unresponsive before kube-controller-manager marks it NotReady; 0 for
	// Kubernetes' default.
	NodeGracePeriod time.Duration
	// Audited are namespaces: AuditLog has the requests of their ServiceAccounts.
	Audited []string
	// Egress is the socket of an HTTP proxy through which the API server connects with nodes, pods and Services; "" for
	// none.
	Egress string
	// Names are further DNS names and IP addresses of the API server.
	Names []string
	// APIServerArgs are further arguments of kube-apiserver.
	APIServerArgs []string
	Group         *proc.Group
	Ports         *ports.Pool
}

// Cluster is one control plane.
type Cluster struct {
	cfg Config
	ca  *authority

	apiPort  int
	etcdPort int
	// components in the order they start.
	components []*component
	mu         sync.Mutex // Guards the processes of the components.
}

type component struct {
	name string
	args []string
	// ready returns nil once the component serves.
	ready   func(context.Context) error
	process *proc.Process
}

// restartAfter is the delay after which a component that has exited is restarted, as a kubelet would do.
const restartAfter = time.Second

// New prepares a cluster: certificates, ports, kubeconfig. Nothing runs yet.
func New(cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	var err error
	if c.ca, err = newAuthority(cfg.Name + "-ca"); err != nil {
		return nil, err
	}
	if err := c.pkiFiles(); err != nil {
		return nil, err
	}
	if err := c.plan(); err != nil {
		return nil, err
	}
	admin, err := c.ca.issue(pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	return c, clientcmd.WriteToFile(c.kubeconfig(admin), c.Kubeconfig())
}

// Kubeconfig is the path of the administrator's kubeconfig. It contains the certificates inline.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.cfg.Dir, "kubeconfig") }

// URL of the API server.
func (c *Cluster) URL() string { return "https://" + c.address() }

func (c *Cluster) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.apiPort)) }

// APIPort is the port of the API server on 127.0.0.1.
func (c *Cluster) APIPort() int { return c.apiPort }

// EtcdPort is the client port of etcd on 127.0.0.1; it speaks plain HTTP.
func (c *Cluster) EtcdPort() int { return c.etcdPort }

// RESTConfig returns the administrator's configuration, without a rate limit.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return cfg, nil
}

// NewServingCert issues a certificate of the cluster's CA for a server with the given DNS names and IP addresses.
func (c *Cluster) NewServingCert(commonName string, names ...string) (KeyPair, error) {
	return c.ca.issue(pkix.Name{CommonName: commonName}, names...)
}

// NewClientConfig returns the configuration of a client that authenticates as the given user with the given groups.
func (c *Cluster) NewClientConfig(user string, groups ...string) (*rest.Config, error) {
	config, err := c.NewKubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(config, nil).ClientConfig()
}

// NewKubeconfig does the same as a kubeconfig, with the certificates inline.
func (c *Cluster) NewKubeconfig(user string, groups ...string) (clientcmdapi.Config, error) {
	pair, err := c.ca.issue(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return clientcmdapi.Config{}, err
	}
	return c.kubeconfig(pair), nil
}

// CA is the cluster's CA certificate in PEM form.
func (c *Cluster) CA() []byte { return c.ca.CertPEM }

// Start runs all components and waits until each is ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, comp := range c.components {
		if err := c.start(ctx, comp); err != nil {
			return err
		}
	}
	return c.allowKubeletCalls(ctx)
}

// Restart restarts the component, or all of them for the empty name.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	for _, comp := range c.components {
		if name != "" && comp.name != name {
			continue
		}
		if p := c.process(comp); p != nil && p.Running() {
			p.Stop(10 * time.Second)
		}
		if err := c.start(ctx, comp); err != nil {
			return err
		}
	}
	return nil
}

// Processes returns the process of each component by name.
func (c *Cluster) Processes() map[string]*proc.Process {
	out := map[string]*proc.Process{}
	for _, comp := range c.components {
		if p := c.process(comp); p != nil {
			out[comp.name] = p
		}
	}
	return out
}

func (c *Cluster) process(comp *component) *proc.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return comp.process
}

func (c *Cluster) start(ctx context.Context, comp *component) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c.mu.Lock()
	p, err := c.run(comp)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.WaitFor(ctx, comp.ready); err != nil {
		return err
	}
	go c.keep(comp, p)
	return nil
}

// keep restarts a component that exits by itself, until it is ended or the group is. kube-scheduler exits if its watch
// of pods is interrupted while a pod is replaced by another one of the same name (pkg/scheduler/backend/cache: "Pod
// updated on a different node").
func (c *Cluster) keep(comp *component, p *proc.Process) {
	for {
		<-p.Done
		time.Sleep(restartAfter)
		c.mu.Lock()
		var err error
		if replaced := comp.process != p; replaced || p.Asked() {
			err = errors.New("it is not to run")
		} else {
			p, err = c.run(comp)
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// run starts the process of a component.
func (c *Cluster) run(comp *component) (*proc.Process, error) {
	p, err := c.cfg.Group.Start(proc.Spec{
		Name: c.cfg.Name + "/" + comp.name,
		Path: c.cfg.Binary,
		Args: append([]string{comp.name}, comp.args...),
		Env:  processEnv(),
		Log:  filepath.Join(c.cfg.Dir, comp.name+".log"),
	})
	if err == nil {
		comp.process = p
	}
	return p, err
}

// plenty is the memory above which components collect garbage less often. Ten clusters then use 10 GB instead of 5.
const plenty = 16 << 30

// manyProcessors is more CPUs than the processes of ten clusters keep busy.
const manyProcessors = 8

// processEnv returns the environment of a component. Idle control planes spend much of their time on garbage collection
// and on waking threads. A machine with little memory needs frequent garbage collection. If there are fewer CPUs than
// manyProcessors, GOMAXPROCS=1 reduces the waking of threads: five clusters start in 64 s instead of 75 to 86.
func processEnv() []string {
	gogc := "50"
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil && min(info.Totalram*uint64(info.Unit), limit()) >= plenty {
		gogc = "300"
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GOGC=" + gogc}
	if runtime.NumCPU() < manyProcessors {
		env = append(env, "GOMAXPROCS=1")
	}
	return env
}

// limit returns the memory limit of the container, in bytes.
func limit() uint64 {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max") // "max" if there is no limit.
	if n, notANumber := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && notANumber == nil {
		return n
	}
	return math.MaxUint64
}

// allowKubeletCalls lets the API server's client certificate use the kubelet
// API, as kubeadm does.
func (c *Cluster) allowKubeletCalls(ctx context.Context) error {
	cfg, err := c.RESTConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletClientName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletClientName}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%s: allow the API server to call kubelets: %w", c.cfg.Name, err)
	}
	return nil
}

func (c *Cluster) kubeconfig(user KeyPair) clientcmdapi.Config {
	name := c.cfg.Name
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.URL(), CertificateAuthorityData: c.ca.CertPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: user.Cert, ClientKeyData: user.Key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}
