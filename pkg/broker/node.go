package broker

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// manyPods is what the node shows for the number of pods when a provider does not limit it: Kubernetes' scheduler
// takes a resource that a node does not name for none.
const manyPods = 10_000

// brokerNode is the Node object of the broker. It is virtual-kubelet's NodeProvider: its node controller writes the
// object and its lease.
type brokerNode struct {
	cfg     *Config
	kube    kubernetes.Interface
	version string
	// sum says what the providers that can be given pods granted together, and how many there are.
	sum func() (granted corev1.ResourceList, providers int)
	// settled answers when the providers are known well enough to say what the Node is.
	settled func(ctx context.Context)
	// hold says that what is known of the providers is not to be trusted: the Node stays as it is.
	hold func() bool

	// dirty has an element when the Node may have changed.
	dirty chan struct{}

	mu   sync.Mutex
	last *corev1.Node // Guarded by mu.
}

func newBrokerNode(cfg *Config, kube kubernetes.Interface, version string) *brokerNode {
	return &brokerNode{cfg: cfg, kube: kube, version: version, dirty: make(chan struct{}, 1)}
}

// Ping implements node.NodeProvider.
func (*brokerNode) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus implements node.NodeProvider: it tells of every change until ctx ends. Nobody waits for that: telling
// blocks while the node controller is writing.
func (n *brokerNode) NotifyNodeStatus(ctx context.Context, changes func(*corev1.Node)) {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-n.dirty:
			}
			if fresh := n.changed(); fresh != nil {
				changes(fresh)
			}
		}
	}()
}

// refresh has the Node shown as it is now, soon.
func (n *brokerNode) refresh() {
	select {
	case n.dirty <- struct{}{}:
	default: // It will be.
	}
}

// changed is the Node as it is now; nil if that is how it was.
func (n *brokerNode) changed() *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil || n.hold() {
		return nil
	}
	fresh := n.forge(n.last)
	if sameStatus(&n.last.Status, &fresh.Status) {
		return nil
	}
	n.last = fresh
	return fresh.DeepCopy()
}

// run keeps the Node and its lease until ctx ends.
func (n *brokerNode) run(ctx context.Context) error {
	owners, err := n.owners(ctx)
	if err != nil {
		return err
	}
	// A new leader knows nothing yet, and must not show that: Kubernetes marks the pods of a Node that is not Ready.
	n.settled(ctx)
	first, err := n.first(ctx)
	if err != nil {
		return err
	}
	first.OwnerReferences = owners
	n.mu.Lock()
	n.last = first.DeepCopy()
	n.mu.Unlock()
	if err := n.claim(ctx, first); err != nil {
		return fmt.Errorf("node %q: %w", n.cfg.NodeName, err)
	}
	n.refresh()
	controller, err := node.NewNodeController(n, first, n.kube.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(n.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease),
			int32(n.cfg.Lease.NodeDuration.Seconds())),
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, cause error) error {
			if !kerrors.IsNotFound(cause) {
				return cause
			}
			n.mu.Lock()
			wanted := n.last.DeepCopy()
			n.mu.Unlock()
			_, err := n.kube.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
			return err
		}),
	)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.cfg.NodeName, err)
	}
	if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("node %q: %w", n.cfg.NodeName, err)
	}
	return nil
}

// first is the Node as a leader begins with it. If what it knows of the providers is not to be trusted, the Node is as the
// leader before left it: Kubernetes deletes the pods of one that is NotReady, which is what nobody's answer looks like.
func (n *brokerNode) first(ctx context.Context) (*corev1.Node, error) {
	first := n.forge(nil)
	if !n.hold() {
		return first, nil
	}
	before, err := n.kube.CoreV1().Nodes().Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return first, nil
	}
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", n.cfg.NodeName, err)
	}
	conditions, complete := conditionsOf(&before.Status)
	if _, ours := before.Labels[v1alpha1.BrokerNodeLabel]; ours && complete {
		first.Status.Conditions = conditions
		first.Status.Capacity, first.Status.Allocatable = before.Status.Capacity, before.Status.Allocatable
	}
	return first, nil
}

// conditionsOf are those of a status that forge writes; others may have added their own.
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

// claim makes the Node, or gives the metadata and the spec that it is to have to the one that is there: virtual-kubelet
// updates the status only. A Node that is not the broker's is left alone.
func (n *brokerNode) claim(ctx context.Context, wanted *corev1.Node) error {
	nodes := n.kube.CoreV1().Nodes()
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

// owners make the Node go with the ClusterRole of the broker's installation.
func (n *brokerNode) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	if n.cfg.OwnerClusterRole == "" {
		return nil, nil
	}
	role, err := n.kube.RbacV1().ClusterRoles().Get(ctx, n.cfg.OwnerClusterRole, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("--owner-cluster-role: %w", err)
	}
	return []metav1.OwnerReference{{
		APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: role.Name, UID: role.UID,
	}}, nil
}

// forge makes the Node as it is to be now; the times of conditions that stay are those of before.
func (n *brokerNode) forge(before *corev1.Node) *corev1.Node {
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
			Name: n.cfg.NodeName,
			Labels: map[string]string{
				v1alpha1.BrokerNodeLabel: "true",
				consts.TypeLabel:         consts.TypeNode,
				corev1.LabelHostname:     n.cfg.NodeName,
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
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.cfg.NodeIP}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n.cfg.Kubelet.Port)}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: n.version, OperatingSystem: "linux", Architecture: runtime.GOARCH,
			},
		},
	}
	if before != nil {
		forged.OwnerReferences = before.OwnerReferences
	}
	return forged
}

// sameStatus compares what refresh may change.
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

// sum adds up what the providers that can be given pods have granted.
func (b *Broker) sum() (corev1.ResourceList, int) {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	total, providers, unlimited := scheduler.Resources{}, 0, false
	for _, p := range b.core.state.Providers() {
		if !p.Enabled || !p.Ready || p.Cordoned || p.Draining {
			continue
		}
		providers++
		for _, slice := range p.Slices {
			total.Add(slice.Granted)
			if _, limited := slice.Granted[corev1.ResourcePods]; !limited {
				unlimited = true
			}
		}
	}
	if unlimited {
		total.Add(scheduler.Resources{corev1.ResourcePods: manyPods})
	}
	list := corev1.ResourceList{}
	for name, amount := range total {
		list[name] = quantity(name, amount)
	}
	return list, providers
}
