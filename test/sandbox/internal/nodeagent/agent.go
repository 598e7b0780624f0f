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

// Taint keeps pods that do not tolerate it off the agent's node.
const Taint = "sandbox.liqo-broker-vk/host"

// NodeLabel marks the agent's node.
const NodeLabel = "sandbox.liqo-broker-vk/host"

const (
	leaseDuration  = 40 * time.Second
	heartbeatEvery = 10 * time.Second
	callTimeout    = 10 * time.Second
)

// Image describes how the agent runs containers with an image name.
type Image struct {
	// Binary is run whatever path the container's command names. It still sees the last element of that path as its own
	// name.
	Binary string
	// Machine makes the agent run the program of this machine that the container's command names.
	Machine bool
	// Command is the default command of containers.
	Command []string
	// Ports returns the arguments that give the process its own ports, because all processes share one loopback; nil
	// for none.
	Ports func(command []string) []Port
	// InNetwork runs the process in the network of its pod, or in the node's for a pod with hostNetwork, if the agent
	// has a Network.
	InNetwork bool
}

// Port is a port that a process listens on.
type Port struct {
	// Argument is appended to the pod's arguments, with %d for the port. Ports with the same Argument are one port with
	// several numbers.
	Argument string
	// Container is the port's number in the pod, which probes use.
	Container int
}

// Config configures an agent.
type Config struct {
	Cluster string
	// NodeName is the agent's Node.
	NodeName string
	Client   kubernetes.Interface
	// Untainted registers the node without its taint, for pods that do not tolerate it.
	Untainted bool
	// APIPort is the port of the API server on 127.0.0.1, for pods.
	APIPort int
	// Contain is the binary of cmd/contain.
	Contain string
	// Dir has a directory for each pod, LogDir the log of each container.
	Dir, LogDir string
	Images      map[string]Image
	Group       *proc.Group
	Ports       *ports.Pool
	// Network is the node's network if its packets are real, else nil. If it is set, any pod may run on the node.
	Network *packets.Node
	// Certificate is for the kubelet API, of which the agent serves port-forward and logs; ClientCA, in PEM, verifies
	// its clients.
	Certificate tls.Certificate
	ClientCA    []byte
}

// Agent runs pods.
type Agent struct {
	cfg      Config
	listener net.Listener

	mu   sync.Mutex
	pods map[types.UID]*podWorker
	// held are the components and pods that Kill stopped: they stay down until Restart.
	held map[string]bool
}

// New returns an agent that does nothing before Run.
func New(cfg Config) *Agent {
	return &Agent{cfg: cfg, pods: map[types.UID]*podWorker{}, held: map[string]bool{}}
}

// Run serves until ctx ends, then ends every process and returns. Register must have been called.
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

// observe passes the newest state of a pod to its worker, and starts a worker for a new pod.
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

// forget ends the worker of a deleted pod, including a force-deleted one.
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

// nodeAddresses returns the addresses of the node. API servers call the kubelet by the host name, if it has one
// (--kubelet-preferred-address-types).
func (a *Agent) nodeAddresses() []corev1.NodeAddress {
	if a.cfg.Network == nil {
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback}}
	}
	return []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: a.cfg.Network.Address.String()}, {Type: corev1.NodeHostName, Address: loopback},
	}
}

// patchNodeStatus changes only a part of the node's status, because controllers change the node at the same time.
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

// heartbeats renews the node's lease, marks the node Ready again after a late renewal, and repeats failed status
// reports, until ctx ends.
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
		_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: a.cfg.NodeName}, Spec: spec},
			metav1.CreateOptions{})
		return
	}
	lease.Spec = spec
	_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// postReady marks the node Ready if it is not. kube-controller-manager sets the condition to Unknown after a late
// renewal of the lease, and the next renewal alone does not undo this (pkg/controller/nodelifecycle).
func (a *Agent) postReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := a.cfg.Client.CoreV1().Nodes().Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return // The next heartbeat retries.
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
	// Component is the name of a Deployment, or of a pod without a Deployment.
	Component, Pod string
	*proc.Process
}

// is reports whether the worker's pod, or its component, has that name.
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

// HostPort returns the port on 127.0.0.1 of a named port of a pod's container, or 0 if the container does not run.
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

// Kill ends the processes of a component, or of one pod, with SIGKILL; they are not restarted until Restart.
func (a *Agent) Kill(name string) {
	a.mu.Lock()
	a.held[name] = true
	a.mu.Unlock()
	for _, p := range a.running(name) {
		p.Kill()
	}
}

// Restart restarts the processes of a component or of one pod, whether they run or not.
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

// release allows a pod to run again. If its whole component is held, the other pods stay down. The caller holds mu.
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

// ComponentOf returns the component of a pod. The name of a Deployment's ReplicaSet is the Deployment's name, a dash
// and the pod template's hash.
func ComponentOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	hash := pod.Labels["pod-template-hash"]
	if owner == nil || owner.Kind != "ReplicaSet" || hash == "" {
		return pod.Name
	}
	return owner.Name[:len(owner.Name)-len(hash)-1]
}

func (a *Agent) podDir(pod *corev1.Pod) string { return filepath.Join(a.cfg.Dir, string(pod.UID)) }
