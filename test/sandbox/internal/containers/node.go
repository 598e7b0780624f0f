package containers

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/controlplane"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// plugins is where Debian's package containernetworking-plugins has its programs.
const plugins = "/usr/lib/cni"

// kubeletDir is where cmd/node shows the kubelet's state in a node: where each kubelet has it. The path of a Unix socket has at most 107
// bytes, and the kubelet's sockets would be further below a user's cache than that.
const kubeletDir = "/var/lib/kubelet"

// startTimeout bounds how long the runtime and the kubelet may each take until they serve.
const startTimeout = 2 * time.Minute

// Config describes a node.
type Config struct {
	Cluster *controlplane.Cluster
	// ClusterName and Name are the names of the cluster, and of the Node.
	ClusterName, Name string
	// Kubelet and Node are binaries: the kubelet, and cmd/node.
	Kubelet, Node string
	// Registry is the address, over plain HTTP, of the registry with these names in images.
	Registry      string
	RegistryNames []string
	// Images is an archive that WriteImages wrote, in a directory of its own.
	Images string
	// Dir holds the node's files, LogDir the logs of its processes.
	Dir, LogDir string
	// Cgroup is the name of the node's cgroup in each hierarchy.
	Cgroup  string
	Network *packets.Node
	// PodCIDR is the range of the addresses of pods, DNS the address of their name server.
	PodCIDR netip.Prefix
	DNS     netip.Addr
	// Labels and Taints are those with which the kubelet registers the node: key=value, key=value:effect.
	Labels, Taints []string
	Group          *proc.Group
}

// Machine is a running node.
type Machine struct {
	cfg Config
	// first is the first process of the namespaces. The others are in them, and end with it.
	first *proc.Process

	restarting sync.Mutex
	mu         sync.Mutex
	// runtime and kubelet are guarded by mu.
	runtime, kubelet *proc.Process
}

// Possible returns nil if this process may start nodes, else the reason.
func Possible() error {
	if err := packets.Possible(); err != nil {
		return err
	}
	for _, program := range []string{"containerd", "runc", "ctr"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("containers need the program %s (Debian's packages containerd and runc): %w", program, err)
		}
	}
	if _, err := os.Stat(filepath.Join(plugins, "ptp")); err != nil {
		return fmt.Errorf("containers need CNI plugins (Debian's package containernetworking-plugins): %w", err)
	}
	if err := isStatic(busybox); err != nil {
		return fmt.Errorf("containers need a static busybox (Debian's package busybox-static): %w", err)
	}
	if dirs, err := hierarchies("cgroup"); err != nil || len(dirs) == 0 {
		return errors.Join(errors.New("containers need cgroups v1, and no controller is mounted"), err)
	}
	return nil
}

// isStatic returns nil if a program needs no other file: an image has none.
func isStatic(path string) error {
	program, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically", path)
		}
	}
	return nil
}

// Start starts a node, and returns once its kubelet serves.
func Start(ctx context.Context, cfg Config) (*Machine, error) {
	m := &Machine{cfg: cfg}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := m.writeFiles(); err != nil {
		return nil, err
	}
	if err := makeCgroups(cfg.Cgroup); err != nil {
		return nil, err
	}
	if err := m.startFirst(ctx); err != nil {
		return nil, err
	}
	if err := m.startRuntime(ctx); err != nil {
		return nil, err
	}
	// An image is unpacked for its first container (WithNewSnapshot in containerd's pkg/cri/opts).
	err := m.run(ctx, "ctr", "ctr", "--address="+socket, "--namespace=k8s.io", "images", "import", "--no-unpack", cfg.Images)
	if err != nil {
		return nil, err
	}
	return m, m.startKubelet(ctx)
}

// Processes returns the processes of the node, by the names of their components.
func (m *Machine) Processes() map[string]*proc.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]*proc.Process{"node": m.first, "containerd": m.runtime, "kubelet": m.kubelet}
}

// Restart starts containerd or the kubelet again, whether it runs or not; both for "", with the runtime first.
func (m *Machine) Restart(ctx context.Context, component string) error {
	m.restarting.Lock()
	defer m.restarting.Unlock()
	if !m.first.Running() || component == "node" {
		return fmt.Errorf("%s: a node is not restarted as a whole, take the sandbox down and up again", m.cfg.Name)
	}
	of := m.Processes()
	if component == "" || component == "containerd" {
		of["containerd"].Kill()
		if err := m.startRuntime(ctx); err != nil {
			return err
		}
	}
	if component == "" || component == "kubelet" {
		of["kubelet"].Kill()
		return m.startKubelet(ctx)
	}
	return nil
}

func (m *Machine) file(elem ...string) string {
	return filepath.Join(append([]string{m.cfg.Dir}, elem...)...)
}

func (m *Machine) startFirst(ctx context.Context) (err error) {
	ready := m.file("ready")
	m.first, err = m.cfg.Group.Start(proc.Spec{
		Name: m.cfg.ClusterName + "/node", Path: m.cfg.Node, Network: m.cfg.Network.FD(), Private: true, First: true,
		Args: []string{
			"init", "--hostname=" + m.cfg.Name, "--ready=" + ready,
			"--keep=" + m.cfg.Dir, "--keep=" + m.cfg.LogDir, "--keep=" + filepath.Dir(m.cfg.Node),
			"--keep=" + filepath.Dir(m.cfg.Images), "--kubelet=" + m.file("kubelet"),
		},
		Log: filepath.Join(m.cfg.LogDir, "node.log"),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return m.first.WaitFor(ctx, func(context.Context) error {
		_, err := os.Stat(ready)
		return err
	})
}

// start starts a program in the namespaces of the node.
func (m *Machine) start(component string, command ...string) (*proc.Process, error) {
	return m.cfg.Group.Start(proc.Spec{
		Name: m.cfg.ClusterName + "/" + component, Path: m.cfg.Node, Network: m.cfg.Network.FD(), Inside: m.first,
		Args: append([]string{"enter", fmt.Sprint(m.first.PID), "--"}, command...),
		Env: []string{
			// The runtime makes the sockets of terminals in a temporary directory, whose path must be short, too.
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/run",
		},
		Log: filepath.Join(m.cfg.LogDir, component+".log"),
	})
}

// socket is where the runtime serves, as its processes in the node see it.
const socket = "/run/containerd/containerd.sock"

// Socket is where the runtime serves, as other processes of this machine see it.
func (m *Machine) Socket() string { return fmt.Sprintf("/proc/%d/root%s", m.first.PID, socket) }

func (m *Machine) startRuntime(ctx context.Context) error {
	runtime, err := m.start("containerd", "containerd", "--config="+m.file("containerd.toml"))
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.runtime = runtime
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+m.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := runtimev1.NewRuntimeServiceClient(conn)
	return runtime.WaitFor(ctx, func(ctx context.Context) error {
		_, err := client.Version(ctx, &runtimev1.VersionRequest{}) // A kubelet that starts asks this once.
		if status.Code(err) == codes.Unimplemented {
			// Its CRI plugin has failed, which is final. "Too many open files" means that fs.inotify.max_user_instances
			// are in use, by other sandboxes.
			runtime.Kill()
		}
		return err
	})
}

func (m *Machine) startKubelet(ctx context.Context) error {
	kubelet, err := m.start("kubelet", m.cfg.Kubelet,
		"--config="+m.file("kubelet.yaml"), "--kubeconfig="+m.file("kubeconfig"), "--hostname-override="+m.cfg.Name,
		"--node-ip="+m.cfg.Network.Address.String(), "--root-dir="+kubeletDir, "--cert-dir="+m.file("pki"),
		"--node-labels="+strings.Join(m.cfg.Labels, ","),
	)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.kubelet = kubelet
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return kubelet.WaitFor(ctx, func(ctx context.Context) error {
		conn, err := m.cfg.Network.DialContext(ctx, "tcp", net.JoinHostPort(m.cfg.Network.Address.String(), "10250"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// run runs a program in the namespaces of the node until it ends.
func (m *Machine) run(ctx context.Context, component string, command ...string) error {
	p, err := m.start(component, command...)
	if err != nil {
		return err
	}
	select {
	case <-p.Done:
		if p.Err() != nil {
			return p.Failure()
		}
		return nil
	case <-ctx.Done():
		p.Kill()
		return ctx.Err()
	}
}

// PIDs returns the processes of a container, as this machine counts them; nothing if it does not run.
func (m *Machine) PIDs(podUID, containerID string) (pids []int) {
	dirs, err := hierarchies("cgroup")
	if err != nil || containerID == "" {
		return nil
	}
	for _, dir := range dirs {
		// Guaranteed pods have no cgroup of their class.
		for _, class := range []string{"", "burstable", "besteffort"} {
			list, err := os.ReadFile(filepath.Join(dir, m.cfg.Cgroup, "kubepods", class, "pod"+podUID, containerID, "cgroup.procs"))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(list)) {
				if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			return pids
		}
	}
	return nil
}

// hierarchies returns where the hierarchies of cgroups are mounted, of v1 (cgroup), or of v2 (cgroup2) as well.
func hierarchies(types ...string) (dirs []string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && slices.Contains(types, fields[2]) {
			dirs = append(dirs, fields[1])
		}
	}
	return dirs, nil
}

// makeCgroups creates a cgroup in each hierarchy.
func makeCgroups(name string) error {
	dirs, err := hierarchies("cgroup")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		cgroup := filepath.Join(dir, name)
		if err := os.MkdirAll(cgroup, 0o755); err != nil {
			return err
		}
		// A cpuset has no CPUs and no memory at first.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			inherited, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // Another controller.
			}
			if err := os.WriteFile(filepath.Join(cgroup, file), inherited, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveCgroups removes the cgroups whose name begins with a prefix, with all below them. They must have no processes.
func RemoveCgroups(prefix string) error {
	dirs, err := hierarchies("cgroup", "cgroup2") // runc makes some in v2 as well.
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil {
			return err
		}
		for _, cgroup := range found {
			errs = append(errs, removeCgroup(cgroup))
		}
	}
	return errors.Join(errs...)
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// The processes of a node that was killed leave their cgroups a moment later.
	for tries := 0; ; tries++ {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || tries == 50 {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
