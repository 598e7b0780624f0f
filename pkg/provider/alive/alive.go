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
	// defaultDuration applies to a lease without a duration. It is the default of the broker's --node-lease-duration.
	defaultDuration = 20 * time.Second
	// requestTimeout is the deadline of one check, which has up to four requests.
	requestTimeout = 8 * time.Second
	// reason is the reason of the conditions that a virtual kubelet writes.
	reason = "PodsAreServed"
)

// Config configures a virtual kubelet that keeps the Node alive.
type Config struct {
	Log  logr.Logger
	Kube kubernetes.Interface
	// Node is the name of the broker's Node. VirtualNode is the name of the virtual kubelet's VirtualNode.
	Node, VirtualNode string
	// Serves reports whether this virtual kubelet reaches its provider and forwards pods that have not ended.
	Serves func() bool
}

// keeper is the state of one virtual kubelet.
type keeper struct {
	Config
	// seen is the renewal that the last check saw or made; nil if there was none since the virtual kubelet started to
	// serve. Only a change of it matters: the clocks of machines differ.
	seen *metav1.MicroTime
	// duration is the lease's duration.
	duration time.Duration
	renews   bool
}

// untilServes is the interval at which a virtual kubelet that does not serve yet checks again.
const untilServes = time.Second

// Run checks the lease until ctx ends. The broker renews it four times in its duration. The pause between two checks is
// one half to three quarters of that duration. So a single virtual kubelet renews a lease at most 1.5 durations after
// the last renewal, which is less than the grace period of Kubernetes. With many, the first one to notice renews it.
// The first check follows as soon as the virtual kubelet serves: after an outage of the API server the virtual kubelets
// restart, and the grace period has begun long ago.
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
			k.Log.Error(err, "Cannot keep the broker's node alive", "node", k.Node)
		}
	}
}

// check renews the lease if no process has done so since the last check.
func (k *keeper) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leases := k.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	// The read is served from the API server's cache; an update checks the version.
	lease, err := leases.Get(ctx, k.Node, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case kerrors.IsNotFound(err):
		return k.create(ctx)
	case err != nil:
		return fmt.Errorf("reading the lease of node %q: %w", k.Node, err)
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
		return nil // Another process renewed it first.
	case err != nil:
		return fmt.Errorf("renewing the lease of node %q: %w", k.Node, err)
	}
	if !k.renews {
		k.Log.Info("No broker renews the lease of the node, renewing it while this virtual kubelet serves pods", "node", k.Node)
	}
	k.seen, k.renews = renewed.Spec.RenewTime, true
	return k.markReady(ctx)
}

// isOld reports whether a lease has not been renewed for its duration, by this machine's clock. The broker would have
// renewed it four times. Without an earlier check there is no other evidence. If the clock is wrong, the lease is
// renewed once without need.
func (k *keeper) isOld(lease *coordinationv1.Lease) bool {
	return lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) > k.duration
}

// create creates the lease of a Node that has none. The owner reference makes the garbage collector delete it with the
// Node, which may have been recreated.
func (k *keeper) create(ctx context.Context) error {
	node, err := k.Kube.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil // The broker was removed.
	}
	if err != nil {
		return fmt.Errorf("reading node %q: %w", k.Node, err)
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
		return fmt.Errorf("creating the lease of node %q: %w", k.Node, err)
	}
	return nil
}

// markReady resets the conditions that Kubernetes' Node lifecycle controller set to Unknown, because the lease was not
// renewed within the grace period (monitorNodeHealth in pkg/controller/nodelifecycle of Kubernetes v1.35): that
// controller never resets them itself. Other states of the conditions are not changed.
func (k *keeper) markReady(ctx context.Context) error {
	node, err := k.Kube.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading node %q: %w", k.Node, err)
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
		return fmt.Errorf("patching the status of node %q: %w", k.Node, err)
	}
	k.Log.Info("The node conditions were Unknown, marked the node Ready because its pods are served", "node", k.Node)
	return nil
}
