package node

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// manyPods is the number of pods that the node shows when a provider does not limit it: kube-scheduler takes a resource
// that a node does not name for none.
const manyPods = 10_000

const (
	// probesGrace is how long the first probes may take beyond twice their timeout: caches and connections come first.
	probesGrace = 4 * time.Second
	// probesInterval is how often the first probes are checked.
	probesInterval = 100 * time.Millisecond
)

// Config is everything that the node needs.
type Config struct {
	Client client.Client
	Kube   kubernetes.Interface
	Belief *belief.Belief

	// Name is the name of the Node, IP its InternalIP, Port that of its kubelet API, Version the KubeletVersion.
	Name, IP string
	Port     uint16
	Version  string
	// OwnerClusterRole names a ClusterRole that owns the Node; "" is none.
	OwnerClusterRole string
	// LeaseDuration is that of the Node's lease, ProbeTimeout that of the providers' probes.
	LeaseDuration, ProbeTimeout time.Duration
}

// Node is the Node object of the broker. It is virtual-kubelet's NodeProvider, whose node controller writes the object and
// its lease.
type Node struct {
	Config

	// changed has an element when the Node may have changed.
	changed chan struct{}

	mu   sync.Mutex
	last *corev1.Node // Guarded by mu.
}

// New returns a Node, which does nothing before Run.
func New(cfg Config) *Node { return &Node{Config: cfg, changed: make(chan struct{}, 1)} }

// Ping implements node.NodeProvider.
func (*Node) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus implements node.NodeProvider: it reports every change until ctx ends. The report blocks while the node
// controller is writing.
func (n *Node) NotifyNodeStatus(ctx context.Context, changes func(*corev1.Node)) {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-n.changed:
			}
			if fresh := n.next(); fresh != nil {
				changes(fresh)
			}
		}
	}()
}

// Refresh has the Node updated soon. Many calls become one.
func (n *Node) Refresh() {
	select {
	case n.changed <- struct{}{}:
	default: // It is about to be updated.
	}
}

// next returns the Node as it is now; nil if nothing has changed, or if the broker suspects itself.
func (n *Node) next() *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil || n.Belief.SuspectsItself() {
		return nil
	}
	fresh := n.forge(n.last)
	if sameStatus(&n.last.Status, &fresh.Status) {
		return nil
	}
	n.last = fresh
	return fresh.DeepCopy()
}

// Run keeps the Node and its lease until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	owners, err := n.owners(ctx)
	if err != nil {
		return err
	}
	// Until then no provider is known to be ready, and Kubernetes marks the pods of a Node that is not Ready.
	n.awaitProbes(ctx)
	first, err := n.first(ctx)
	if err != nil {
		return err
	}
	first.OwnerReferences = owners
	n.mu.Lock()
	n.last = first.DeepCopy()
	n.mu.Unlock()
	if err := n.claim(ctx, first); err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	n.Refresh()
	controller, err := node.NewNodeController(n, first, n.Kube.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(n.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease),
			int32(n.LeaseDuration.Seconds())),
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, cause error) error {
			if !kerrors.IsNotFound(cause) {
				return cause
			}
			n.mu.Lock()
			wanted := n.last.DeepCopy()
			n.mu.Unlock()
			_, err := n.Kube.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
			return err
		}),
	)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	return nil
}

// awaitProbes waits until every provider was probed once, with a timeout: one that does not answer is not Ready.
func (n *Node) awaitProbes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*n.ProbeTimeout+probesGrace)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, probesInterval, true, func(ctx context.Context) (bool, error) {
		var list v1alpha1.ProviderClusterList
		if err := n.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return false, nil //nolint:nilerr // It is listed again.
		}
		ids := make([]string, len(list.Items))
		for i := range list.Items {
			ids[i] = list.Items[i].Name
		}
		return n.Belief.AllProbed(ids), nil
	})
}

// first returns the Node with which a leader begins. If the broker suspects itself, the Node stays as the leader before
// left it: Kubernetes deletes the pods of a Node that is not Ready.
func (n *Node) first(ctx context.Context) (*corev1.Node, error) {
	first := n.forge(nil)
	if !n.Belief.SuspectsItself() {
		return first, nil
	}
	before, err := n.Kube.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return first, nil
	}
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", n.Name, err)
	}
	conditions, complete := conditionsOf(&before.Status)
	if _, ours := before.Labels[v1alpha1.BrokerNodeLabel]; ours && complete {
		first.Status.Conditions = conditions
		first.Status.Capacity, first.Status.Allocatable = before.Status.Capacity, before.Status.Allocatable
	}
	return first, nil
}

// conditionsOf returns the conditions of a status that forge writes; others may have added their own.
func conditionsOf(status *corev1.NodeStatus) (conditions []corev1.NodeCondition, complete bool) {
	for _, kind := range nodeConditions() {
		at := slices.IndexFunc(status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		if at < 0 {
			return nil, false
		}
		conditions = append(conditions, status.Conditions[at])
	}
	return conditions, true
}

// nodeConditions are the conditions of the Node, Ready first.
func nodeConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	}
}

// claim creates the Node, or sets metadata and spec of the one that exists: virtual-kubelet updates the status only. A
// Node that is not the broker's is left alone.
func (n *Node) claim(ctx context.Context, wanted *corev1.Node) error {
	nodes := n.Kube.CoreV1().Nodes()
	_, err := nodes.Create(ctx, wanted, metav1.CreateOptions{})
	if !kerrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		existing, err := nodes.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, ours := existing.Labels[v1alpha1.BrokerNodeLabel]; !ours {
			return fmt.Errorf("there is a Node of that name which is not the broker's (it lacks the label %s): choose another --broker-node",
				v1alpha1.BrokerNodeLabel)
		}
		for key, value := range wanted.Labels {
			existing.Labels[key] = value
		}
		existing.OwnerReferences = wanted.OwnerReferences
		if !hasTaint(existing.Spec.Taints) {
			existing.Spec.Taints = append(existing.Spec.Taints, wanted.Spec.Taints...)
		}
		_, err = nodes.Update(ctx, existing, metav1.UpdateOptions{})
		return err
	})
}

func hasTaint(taints []corev1.Taint) bool {
	for i := range taints {
		if taints[i].Key == consts.VirtualNodeTolerationKey {
			return true
		}
	}
	return false
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

// forge returns the Node as it is now. Conditions that stay keep the times of before.
func (n *Node) forge(before *corev1.Node) *corev1.Node {
	granted, providers := n.sum()
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "ProvidersReady",
		Message: fmt.Sprintf("%d provider clusters are ready", providers),
	}
	if providers == 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "NoProviderReady", "no provider cluster is ready"
	}
	conditions := []corev1.NodeCondition{ready}
	for _, pressure := range nodeConditions()[1:] {
		conditions = append(conditions, corev1.NodeCondition{Type: pressure, Status: corev1.ConditionFalse, Reason: "ProvidersReady"})
	}
	now := metav1.NewTime(time.Now())
	for i := range conditions {
		conditions[i].LastHeartbeatTime, conditions[i].LastTransitionTime = now, now
		if before != nil && before.Status.Conditions[i].Status == conditions[i].Status {
			conditions[i].LastTransitionTime = before.Status.Conditions[i].LastTransitionTime
		}
	}
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
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: consts.VirtualNodeTolerationKey, Value: "true", Effect: corev1.TaintEffectNoExecute,
		}}},
		Status: corev1.NodeStatus{
			Phase: corev1.NodeRunning, Conditions: conditions, Capacity: granted, Allocatable: granted.DeepCopy(),
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.IP}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n.Port)}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: n.Version, OperatingSystem: "linux", Architecture: runtime.GOARCH,
			},
		},
	}
	if before != nil {
		forged.OwnerReferences = before.OwnerReferences
	}
	return forged
}

// sameStatus compares what may change.
func sameStatus(a, b *corev1.NodeStatus) bool {
	if a.Conditions[0].Status != b.Conditions[0].Status || a.Conditions[0].Message != b.Conditions[0].Message ||
		len(a.Capacity) != len(b.Capacity) {
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

// sum returns what the providers granted that can be given pods, and how many there are.
func (n *Node) sum() (corev1.ResourceList, int) {
	granted, providers, unlimited := n.Belief.Usable()
	if unlimited {
		granted.Add(resources.Amounts{corev1.ResourcePods: manyPods})
	}
	return granted.List(), providers
}
