package alive

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// defaultDuration is the duration of a lease that does not tell one: the default of the broker's --node-lease-duration.
	defaultDuration = 20 * time.Second
	// requestTimeout is the deadline of one check, which has up to four requests.
	requestTimeout = 8 * time.Second
	// reason of the conditions that a virtual kubelet writes.
	reason = "PodsAreServed"
)

// Config is what a virtual kubelet needs to keep the Node alive.
type Config struct {
	Log  logr.Logger
	Kube kubernetes.Interface
	// Node is the name of the broker's Node, VirtualNode that of the virtual kubelet's VirtualNode.
	Node, VirtualNode string
	// Serves reports whether this virtual kubelet reaches its provider, and forwards pods that have not ended.
	Serves func() bool
}

// keeper is the state of one virtual kubelet.
type keeper struct {
	Config
	// seen is the renewal that the last check saw or made; nil if there was none since the virtual kubelet serves. What counts is that it
	// changes: the clocks of machines differ.
	seen *metav1.MicroTime
	// duration is that of the lease.
	duration time.Duration
	renews   bool
}

// untilServes is the pause of a virtual kubelet that does not serve yet.
const untilServes = time.Second

// Run checks the lease until ctx ends. The broker renews it four times in its duration. A check follows the previous one after half of
// that to three quarters: so one virtual kubelet renews a lease 1.5 times its duration after the last renewal at the latest, which is less
// than the grace period of Kubernetes, and of many the first one to notice. The first check follows as soon as the virtual kubelet serves:
// after an outage of the API server the virtual kubelets start again, and the grace period has begun long ago.
func Run(ctx context.Context, cfg Config) error {
	k := &keeper{Config: cfg, duration: defaultDuration}
	for next, checked := untilServes, false; ; {
		pause := time.NewTimer(next)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		if !k.Serves() {
			k.seen, k.renews = nil, false
			next, checked = untilServes, false
			continue
		}
		err := k.check(ctx)
		next, checked = min(2*next, k.duration/2), checked || err == nil
		if checked {
			next = wait.Jitter(k.duration/2, 0.5)
		}
		if err != nil && ctx.Err() == nil {
			k.Log.Error(err, "Cannot keep the node of the broker alive", "node", k.Node)
		}
	}
}

// check renews the lease if no process has since the last check.
func (k *keeper) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leases := k.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, k.Node, metav1.GetOptions{ResourceVersion: "0"}) // Of the API server's cache; an update checks the version.
	switch {
	case kerrors.IsNotFound(err):
		return k.create(ctx)
	case err != nil:
		return fmt.Errorf("lease of node %q: %w", k.Node, err)
	}
	if lease.Spec.LeaseDurationSeconds != nil && *lease.Spec.LeaseDurationSeconds > 0 {
		k.duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	if k.seen == nil && k.isOld(lease) {
		k.seen = lease.Spec.RenewTime
	}
	if k.seen == nil || !k.seen.Equal(lease.Spec.RenewTime) {
		k.seen = ptr.To(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}))
		if lease.Annotations[v1alpha1.RenewedByAnnotation] == "" && k.renews {
			k.Log.Info("The broker renews the lease of the node again", "node", k.Node)
			k.renews = false
		}
		return nil
	}
	lease = lease.DeepCopy()
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.RenewedByAnnotation, k.VirtualNode)
	renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
	switch {
	case kerrors.IsConflict(err):
		return nil // Another process was first.
	case err != nil:
		return fmt.Errorf("lease of node %q: %w", k.Node, err)
	}
	if !k.renews {
		k.Log.Info("No broker renews the lease of the node: its virtual kubelets do, as long as they serve its pods", "node", k.Node)
	}
	k.seen, k.renews = renewed.Spec.RenewTime, true
	return k.markReady(ctx)
}

// isOld reports whether nothing has renewed a lease for its duration by this machine's clock: the broker would have four times. Without an
// earlier check there is nothing else to tell that by. If the clock is wrong, the lease is renewed once without need.
func (k *keeper) isOld(lease *coordinationv1.Lease) bool {
	return lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) > k.duration
}

// create makes the lease of a Node that has none: the garbage collector deletes it with the Node, which may have been made again.
func (k *keeper) create(ctx context.Context) error {
	node, err := k.Kube.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil // The broker was removed.
	}
	if err != nil {
		return fmt.Errorf("node %q: %w", k.Node, err)
	}
	_, err = k.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: k.Node, Annotations: map[string]string{v1alpha1.RenewedByAnnotation: k.VirtualNode},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &k.Node, LeaseDurationSeconds: ptr.To(int32(k.duration.Seconds())), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}, metav1.CreateOptions{})
	if err != nil && !kerrors.IsAlreadyExists(err) {
		return fmt.Errorf("lease of node %q: %w", k.Node, err)
	}
	return nil
}

// markReady sets back the conditions that Kubernetes' controller of Nodes set to Unknown, because nothing renewed the lease for longer than
// its grace period (monitorNodeHealth in pkg/controller/nodelifecycle of Kubernetes v1.35): it never sets them back itself. Other
// states of the conditions are left alone.
func (k *keeper) markReady(ctx context.Context) error {
	node, err := k.Kube.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("node %q: %w", k.Node, err)
	}
	now := metav1.Now()
	var back []corev1.NodeCondition
	for _, c := range node.Status.Conditions {
		wanted, known := map[corev1.NodeConditionType]corev1.ConditionStatus{
			corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
			corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
		}[c.Type]
		if known && c.Status == corev1.ConditionUnknown {
			back = append(back, corev1.NodeCondition{
				Type: c.Type, Status: wanted, Reason: reason, Message: "no broker leads; virtual kubelets serve the pods",
				LastHeartbeatTime: now, LastTransitionTime: now,
			})
		}
	}
	if len(back) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}, "status": map[string]any{"conditions": back},
	})
	if err != nil {
		return err
	}
	_, err = k.Kube.CoreV1().Nodes().Patch(ctx, k.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !kerrors.IsConflict(err) {
		return fmt.Errorf("node %q: %w", k.Node, err)
	}
	k.Log.Info("The node was taken for lost and is Ready again: its pods are served", "node", k.Node)
	return nil
}
