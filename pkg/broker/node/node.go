package node

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/interrupted"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// manyPods is the number of pods that the node shows when a provider does not limit it: kube-scheduler takes a resource
// that a node does not name for none.
const manyPods = 10_000

const (
	// probesGrace is how long the first probes may take beyond twice their timeout: caches and connections come first.
	probesGrace = 4 * time.Second
	// refreshInterval is how often the Node is compared with its wanted state.
	refreshInterval = time.Second
)

// Config is everything that the node needs.
type Config struct {
	Log    logr.Logger
	Client client.Client
	Kube   kubernetes.Interface
	State  *state.Federation
	// Restored reports whether the resources of all assigned pods are counted; until then the capacity does not change.
	Restored func() bool
	// Changed is sent to when the Node may have changed.
	Changed Signal
	// Guard is nil if it is not required.
	Guard *admission.Guard

	// Namespace is where the memory of the Node is kept.
	Namespace string
	// Name is the name of the Node, IP its InternalIP, Port the port of its kubelet API, Version the KubeletVersion.
	Name, IP string
	Port     uint16
	Version  string
	// OwnerClusterRole names a ClusterRole that owns the Node; "" if no ClusterRole owns it.
	OwnerClusterRole string
	// LeaseDuration is the duration of the Node's lease, ProbeTimeout the timeout of the providers' probes.
	LeaseDuration, ProbeTimeout time.Duration
}

// Node is the Node object of the broker. It is virtual-kubelet's NodeProvider, whose node controller writes the object
// and its lease.
type Node struct {
	Config

	mu   sync.Mutex
	last *corev1.Node // Guarded by mu.
	// uid is the UID of the existing Node, remembered the cordon, labels and taints that others have set on it. Guarded
	// by mu.
	uid        types.UID
	remembered *memory
	// stored is the content of the ConfigMap; used by one goroutine.
	stored *memory
	// rewrite has the status written although the Node is as it was last written.
	rewrite atomic.Bool
	// unsettled is for how many ticks the previous capacity is kept while not all providers were probed: ticks, because
	// time also passes while the process hangs. Used by one goroutine.
	unsettled int
	// cordoned is the last written cordon of the Node; used by one goroutine.
	cordoned *bool
}

// New returns a Node, which does nothing before Run.
func New(cfg Config) *Node { return &Node{Config: cfg} }

// Signal has the Node updated soon. Many sent ones become one.
type Signal chan struct{}

// NewSignal returns a Signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // The Node is about to be updated.
	}
}

// Ping implements node.NodeProvider.
func (*Node) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus implements node.NodeProvider: it reports every change until ctx ends. The report blocks while the
// node controller is writing.
func (n *Node) NotifyNodeStatus(ctx context.Context, changes func(*corev1.Node)) {
	n.unsettled = int((2*n.ProbeTimeout + probesGrace) / refreshInterval)
	go func() {
		tick := time.NewTicker(refreshInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-n.Changed:
			case <-tick.C: // Pods have left providers that cannot be given others.
				n.unsettled--
			}
			settled := n.isSettled(ctx)
			if fresh := n.next(settled); fresh != nil {
				changes(fresh)
			} else if n.rewrite.Swap(false) {
				changes(n.latest())
			}
			if !settled {
				continue
			}
			if err := n.cordon(ctx); err != nil {
				n.Log.Error(err, "Failed to cordon or uncordon the node", "node", n.Name)
			}
		}
	}()
}

// next returns the current Node, with the previous capacity until it is settled; nil if nothing has changed.
func (n *Node) next(settled bool) *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !settled && n.last == nil {
		return nil
	}
	status := n.status(n.last)
	if !settled {
		status.Capacity, status.Allocatable = n.last.Status.Capacity, n.last.Status.Allocatable
	}
	if n.last != nil && sameStatus(&n.last.Status, &status) {
		return nil
	}
	n.last = n.with(status, n.last)
	return n.last.DeepCopy()
}

// Run keeps the Node and its lease until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	owners, err := n.owners(ctx)
	if err != nil {
		return err
	}
	first := n.forge(nil)
	first.OwnerReferences = owners
	if err := n.claim(ctx, first); err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	n.mu.Lock()
	n.last = first.DeepCopy()
	n.mu.Unlock()
	n.Changed.Send()
	controller, err := node.NewNodeController(n, first, interrupted.Nodes(n.Kube.CoreV1().Nodes()),
		node.WithNodeEnableLeaseV1(leases{
			LeaseInterface: n.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease), node: n.Name, uid: n.currentUID,
		}, int32(n.LeaseDuration.Seconds())),
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, cause error) error {
			if !kerrors.IsNotFound(cause) {
				return cause
			}
			return n.restore(ctx)
		}),
	)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.keep(ctx) })
	group.Go(func() error {
		if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
		return nil
	})
	return group.Wait()
}

// isSettled reports whether all assigned pods are counted, and each provider is confirmed as reachable or not, or the
// probes had the time to. Until then the Node has the capacity that the previous leader wrote.
func (n *Node) isSettled(ctx context.Context) bool {
	if !n.Restored() {
		return false // The controllers count, and report why they cannot.
	}
	if n.unsettled <= 0 {
		return true
	}
	var list v1alpha1.ProviderClusterList
	if err := n.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false // The cache is filled soon.
	}
	for i := range list.Items {
		if !n.State.Confirmed(list.Items[i].Name) {
			return false
		}
	}
	return true
}

// nodeConditions are the conditions of the Node, Ready first.
func nodeConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	}
}

// errAnothers is the error of a Node that another component has made.
var errAnothers = fmt.Errorf("a Node of this name exists and is not the broker's (it lacks the label %s): choose another --broker-node",
	v1alpha1.BrokerNodeLabel)

// claim creates the Node as it is remembered, or sets metadata and spec of the one that exists: virtual-kubelet updates
// the status only. The capacity of that one is kept in wanted. A Node that is not the broker's is left alone.
func (n *Node) claim(ctx context.Context, wanted *corev1.Node) error {
	existing, err := n.complete(ctx, wanted)
	switch {
	case err == nil:
		wanted.Status.Capacity, wanted.Status.Allocatable = existing.Status.Capacity, existing.Status.Allocatable
	case kerrors.IsNotFound(err):
		remembered, err := n.load(ctx)
		if kerrors.IsForbidden(err) { // The manifests are older.
			n.Log.Error(err, "Not allowed to read the stored cordon, labels and taints of the node, creating it without; "+
				"apply deploy/broker.yaml")
		} else if err != nil {
			return err
		}
		made := wanted.DeepCopy()
		remembered.restore(made)
		if existing, err = n.Kube.CoreV1().Nodes().Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	default:
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uid, n.remembered = existing.UID, memoryOf(existing, wanted)
	return nil
}

// owns reports whether a Node is the broker's: it has the label, or had it when it was claimed.
func (n *Node) owns(existing *corev1.Node) bool {
	_, labelled := existing.Labels[v1alpha1.BrokerNodeLabel]
	uid := n.currentUID()
	return labelled || uid != "" && uid == existing.UID
}

func (n *Node) currentUID() types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.uid
}

// owners makes the ClusterRole of the broker's installation own the Node, which is deleted with it.
func (n *Node) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	if n.OwnerClusterRole == "" {
		return nil, nil
	}
	role, err := n.Kube.RbacV1().ClusterRoles().Get(ctx, n.OwnerClusterRole, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("--owner-cluster-role: %w", err)
	}
	return []metav1.OwnerReference{{
		APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: role.Name, UID: role.UID,
	}}, nil
}

// cordon marks the Node as unschedulable while no provider can be given pods, and takes its own mark away afterwards:
// an administrator may have cordoned the Node.
func (n *Node) cordon(ctx context.Context) error {
	_, usable, _ := n.State.Room()
	wanted := usable == 0
	if n.cordoned != nil && *n.cordoned == wanted {
		return nil
	}
	nodes := n.Kube.CoreV1().Nodes()
	err := interrupted.OnError(retry.DefaultBackoff, kerrors.IsConflict, func() error {
		current, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, marked := current.Annotations[v1alpha1.NoProviderAnnotation]
		switch {
		case wanted && !current.Spec.Unschedulable:
			current.Spec.Unschedulable = true
			metav1.SetMetaDataAnnotation(&current.ObjectMeta, v1alpha1.NoProviderAnnotation, "true")
		case !wanted && marked:
			current.Spec.Unschedulable = false
			delete(current.Annotations, v1alpha1.NoProviderAnnotation)
		default:
			return nil
		}
		_, err = nodes.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err == nil {
		n.cordoned = &wanted
	}
	return err
}

// status returns the current status of the Node. It is Ready while the broker leads: Kubernetes and Liqo treat the pods of a Node that
// is not Ready as lost (Liqo's podstatus-controller, Kubernetes' taint eviction), and the pods at one provider are not
// lost when another, or even this one, accepts no new pods. Conditions that do not change keep their times.
func (n *Node) status(before *corev1.Node) corev1.NodeStatus {
	room, usable := n.room()
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "BrokerLeads",
		Message: fmt.Sprintf("%d provider clusters accept new pods", usable),
	}
	conditions := []corev1.NodeCondition{ready}
	for _, pressure := range nodeConditions()[1:] {
		conditions = append(conditions, corev1.NodeCondition{Type: pressure, Status: corev1.ConditionFalse, Reason: "BrokerLeads"})
	}
	if n.Guard != nil {
		unguarded := corev1.NodeCondition{Type: v1alpha1.NodeUnguarded, Status: corev1.ConditionFalse, Reason: "GuardInForce"}
		if missing := n.Guard.Missing(); missing != "" {
			unguarded.Status, unguarded.Reason, unguarded.Message = corev1.ConditionTrue, "GuardIncomplete", missing
		}
		conditions = append(conditions, unguarded)
	}
	now := metav1.NewTime(time.Now())
	for i := range conditions {
		conditions[i].LastHeartbeatTime, conditions[i].LastTransitionTime = now, now
		if before != nil && before.Status.Conditions[i].Status == conditions[i].Status {
			conditions[i].LastTransitionTime = before.Status.Conditions[i].LastTransitionTime
		}
	}
	return corev1.NodeStatus{
		Phase: corev1.NodeRunning, Conditions: conditions, Capacity: room, Allocatable: room.DeepCopy(),
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.IP}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n.Port)}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: n.Version, OperatingSystem: "linux", Architecture: runtime.GOARCH,
		},
	}
}

// forge returns the current Node.
func (n *Node) forge(before *corev1.Node) *corev1.Node { return n.with(n.status(before), before) }

// with returns the Node with a status.
func (n *Node) with(status corev1.NodeStatus, before *corev1.Node) *corev1.Node {
	forged := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				v1alpha1.BrokerNodeLabel: "true",
				consts.TypeLabel:         consts.TypeNode,
				corev1.LabelHostname:     n.Name,
				corev1.LabelOSStable:     "linux",
				corev1.LabelArchStable:   runtime.GOARCH,
				"node.kubernetes.io/exclude-from-external-load-balancers": "true",
				"type": "virtual-kubelet", // As Liqo after v1.2.0, and other providers of virtual-kubelet.
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: consts.VirtualNodeTolerationKey, Value: "true", Effect: corev1.TaintEffectNoExecute,
		}}},
		Status: status,
	}
	if before != nil {
		forged.OwnerReferences = before.OwnerReferences
	}
	return forged
}

// sameStatus compares the parts of the status that may change.
func sameStatus(a, b *corev1.NodeStatus) bool {
	same := func(x, y corev1.NodeCondition) bool { return x.Status == y.Status && x.Message == y.Message }
	if !slices.EqualFunc(a.Conditions, b.Conditions, same) || len(a.Capacity) != len(b.Capacity) {
		return false
	}
	for name, amount := range a.Capacity {
		other, ok := b.Capacity[name]
		if !ok || amount.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// room returns the capacity of the Node, and how many providers can be assigned pods.
func (n *Node) room() (corev1.ResourceList, int) {
	room, usable, unlimited := n.State.Room()
	if unlimited {
		room.Add(resources.Amounts{corev1.ResourcePods: manyPods})
	}
	return room.List(), usable
}
