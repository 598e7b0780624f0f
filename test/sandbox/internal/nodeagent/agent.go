package nodeagent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/ports"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// Taint keeps pods that do not ask for it off the agent's node.
const Taint = "sandbox.liqo-broker-vk/host"

// NodeLabel marks the agent's node.
const NodeLabel = "sandbox.liqo-broker-vk/host"

const (
	leaseDuration  = 40 * time.Second
	heartbeatEvery = 10 * time.Second
	callTimeout    = 10 * time.Second
)

// Image is what the agent runs for an image name.
type Image struct {
	// Binary is run whatever path the container's command names; the command's
	// last element remains visible to it as its own name.
	Binary string
	// Machine has the programs of this machine run instead, by the name of the container's command.
	Machine bool
	// Command is that of containers that name none.
	Command []string
	// Ports returns what gives the process ports of its own, which it shares a
	// loopback with all others for; nil for none.
	Ports func(command []string) []Port
	// InNetwork has the process be in the network of its pod, or of the node for a pod in the host's network, if the agent
	// has a Network.
	InNetwork bool
}

// Port is one that a process listens on.
type Port struct {
	// Argument is appended to those of the pod, with %d for the port. Ports with the same argument are one, of several
	// numbers.
	Argument string
	// Container is the port in the network of a pod, which probes name.
	Container int
}

// Config describes what the agent serves.
type Config struct {
	Cluster string
	// NodeName is the agent's Node.
	NodeName string
	Client   kubernetes.Interface
	// Untainted has the node take pods that do not tolerate its taint, too.
	Untainted bool
	// APIPort is where pods find the API server on 127.0.0.1.
	APIPort int
	// Contain is the binary of cmd/contain.
	Contain string
	// Dir holds a directory for each pod, LogDir the log of each container.
	Dir, LogDir string
	Images      map[string]Image
	Group       *proc.Group
	Ports       *ports.Pool
	// Network is that of the node, if its packets are real, else nil. Then any pod may run on the node.
	Network *packets.Node
	// Certificate is that of the kubelet API, of which the agent has port-forward and logs; ClientCA, in PEM, that of its callers.
	Certificate tls.Certificate
	ClientCA    []byte
}

// Agent runs pods.
type Agent struct {
	cfg      Config
	listener net.Listener

	mu   sync.Mutex
	pods map[types.UID]*podWorker
	// held are the components, and the single pods, that Kill stopped: they stay
	// down until Restart.
	held map[string]bool
}

// New returns an agent that does nothing before Run.
func New(cfg Config) *Agent {
	return &Agent{cfg: cfg, pods: map[types.UID]*podWorker{}, held: map[string]bool{}}
}

// Run serves until ctx ends, then ends every process and returns. The Node must
// have been registered.
func (a *Agent) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(a.cfg.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", a.cfg.NodeName).String()
		}))
	informer := factory.Core().V1().Pods().Informer()
	var workers sync.WaitGroup
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.observe(ctx, &workers, obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { a.observe(ctx, &workers, obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			a.forget(obj.(*corev1.Pod))
		},
	})
	if err != nil {
		return err
	}
	workers.Go(func() { a.serve(ctx) })
	factory.Start(ctx.Done())
	a.heartbeats(ctx)
	factory.Shutdown()
	workers.Wait()
	return nil
}

// observe hands the newest state of a pod to its worker, which it starts for a
// pod not seen before.
func (a *Agent) observe(ctx context.Context, workers *sync.WaitGroup, pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.pods[pod.UID]
	if !ok {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return
		}
		w = newPodWorker(a, pod)
		a.pods[pod.UID] = w
		workers.Add(1)
		go func() {
			defer workers.Done()
			w.run(ctx)
		}()
	}
	if pod.DeletionTimestamp != nil {
		w.terminate(ptr.Deref(pod.DeletionGracePeriodSeconds, 30))
	}
}

// forget ends the worker of a pod that is gone, also by force.
func (a *Agent) forget(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w, ok := a.pods[pod.UID]; ok {
		w.terminate(0)
		delete(a.pods, pod.UID)
		if w.component != pod.Name {
			delete(a.held, pod.Name)
		}
	}
}

// Register creates the Node and reports it Ready.
func (a *Agent) Register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.cfg.NodeName,
			Labels: map[string]string{
				corev1.LabelHostname: a.cfg.NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", NodeLabel: "true",
			},
		},
	}
	if a.cfg.Network == nil && !a.cfg.Untainted {
		node.Spec.Taints = []corev1.Taint{{Key: Taint, Effect: corev1.TaintEffectNoSchedule}}
	}
	if _, err := a.cfg.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.NodeName, err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	port, err := a.listen()
	if err != nil {
		return err
	}
	return a.patchNodeStatus(ctx, map[string]any{
		"capacity": capacity, "allocatable": capacity,
		"addresses":       a.nodeAddresses(),
		"conditions":      []corev1.NodeCondition{readyCondition()},
		"daemonEndpoints": corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	})
}

// nodeAddresses are those of the node. API servers call the kubelet by the host name, if there is one
// (--kubelet-preferred-address-types).
func (a *Agent) nodeAddresses() []corev1.NodeAddress {
	if a.cfg.Network == nil {
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback}}
	}
	return []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: a.cfg.Network.Address.String()}, {Type: corev1.NodeHostName, Address: loopback},
	}
}

// patchNodeStatus changes a part of the node's status: controllers change the node at the same time.
func (a *Agent) patchNodeStatus(ctx context.Context, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	nodes := a.cfg.Client.CoreV1().Nodes()
	if _, err := nodes.Patch(ctx, a.cfg.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("status of node %s: %w", a.cfg.NodeName, err)
	}
	return nil
}

func readyCondition() corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady",
		Message: "the sandbox's node agent runs", LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// heartbeats renews the node's lease, has the node be Ready again after it was not renewed in time, and repeats the
// status reports that failed, until ctx ends.
func (a *Agent) heartbeats(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		a.renew(ctx)
		a.postReady(ctx)
		for _, w := range a.workers() {
			if w.stale.Load() {
				w.report(ctx)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *Agent) workers() []*podWorker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.pods))
}

func (a *Agent) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := a.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(a.cfg.NodeName),
		LeaseDurationSeconds: ptr.To(int32(leaseDuration.Seconds())),
		RenewTime:            ptr.To(metav1.NowMicro()),
	}
	lease, err := leases.Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: a.cfg.NodeName}, Spec: spec}, metav1.CreateOptions{})
		return
	}
	lease.Spec = spec
	_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// postReady has the node be Ready unless it is. kube-controller-manager sets the condition Unknown when the lease is
// renewed late, and a lease alone does not undo that (pkg/controller/nodelifecycle).
func (a *Agent) postReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := a.cfg.Client.CoreV1().Nodes().Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return // The next heartbeat tries again.
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		_ = a.patchNodeStatus(ctx, map[string]any{"conditions": []corev1.NodeCondition{readyCondition()}})
	}
}

// Process is a running container.
type Process struct {
	// Component is a Deployment's name, or that of a pod which no Deployment owns.
	Component, Pod string
	*proc.Process
}

// is reports whether the worker's pod is the one of that name, or of the
// component of that name.
func (w *podWorker) is(name string) bool { return w.component == name || w.pod.Name == name }

// Processes returns all running containers.
func (a *Agent) Processes() []Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Process
	for _, w := range a.pods {
		for _, p := range w.processes() {
			out = append(out, Process{Component: w.component, Pod: w.pod.Name, Process: p})
		}
	}
	return out
}

// running returns the processes of a component or of a pod.
func (a *Agent) running(name string) []*proc.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*proc.Process
	for _, w := range a.pods {
		if w.is(name) {
			out = append(out, w.processes()...)
		}
	}
	return out
}

// Components returns the pods of every component, running or not.
func (a *Agent) Components() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string][]string{}
	for _, w := range a.pods {
		out[w.component] = append(out[w.component], w.pod.Name)
	}
	return out
}

// HostPort is where a named port of a pod's container is on 127.0.0.1 while it
// runs; 0 if it does not.
func (a *Agent) HostPort(pod, name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.pods {
		if w.pod.Name == pod {
			return w.hostPort(name)
		}
	}
	return 0
}

// Kill ends the processes of a component, or of one pod, by SIGKILL; they are
// not run again until Restart.
func (a *Agent) Kill(name string) {
	a.mu.Lock()
	a.held[name] = true
	a.mu.Unlock()
	for _, p := range a.running(name) {
		p.Kill()
	}
}

// Restart ends the processes of a component or of one pod, if any run, and runs
// them anew.
func (a *Agent) Restart(name string) {
	for _, p := range a.running(name) {
		p.Stop(10 * time.Second)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.pods {
		if w.is(name) {
			a.release(w)
			w.kick()
		}
	}
	delete(a.held, name)
}

// release lets a pod run again; others of a component that is held as a whole
// stay down. The caller holds mu.
func (a *Agent) release(w *podWorker) {
	if a.held[w.component] {
		delete(a.held, w.component)
		for _, other := range a.pods {
			if other.component == w.component {
				a.held[other.pod.Name] = true
			}
		}
	}
	delete(a.held, w.pod.Name)
}

// Held returns the components and pods that Kill stopped.
func (a *Agent) Held() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.held))
}

func (a *Agent) isHeld(w *podWorker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held[w.component] || a.held[w.pod.Name]
}

// componentOf names what a pod belongs to. A Deployment's ReplicaSet is called
// as the Deployment, a dash and the pod template's hash.
func componentOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	hash := pod.Labels["pod-template-hash"]
	if owner == nil || owner.Kind != "ReplicaSet" || hash == "" {
		return pod.Name
	}
	return owner.Name[:len(owner.Name)-len(hash)-1]
}

func (a *Agent) podDir(pod *corev1.Pod) string { return filepath.Join(a.cfg.Dir, string(pod.UID)) }
