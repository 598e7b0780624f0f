package node

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/capacitorset/liqo-broker-vk/pkg/interrupted"
)

const (
	// keepInterval is the least time between two corrections: another controller may want the contrary.
	keepInterval = time.Second
	// retryInterval is how soon a correction or the memory that could not be written is tried again.
	retryInterval = 5 * time.Second
)

// keep restores the Node when it was deleted, or lacks something that the broker needs, until ctx ends. Kubernetes'
// garbage collector deletes the pods of a Node that has been missing for 40 s (pkg/controller/podgc in v1.35). The
// watch has the state, so that a deletion that it missed is noticed as well.
func (n *Node) keep(ctx context.Context) error {
	changed := NewSignal()
	own := informers.NewSharedInformerFactoryWithOptions(n.Kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.Name).String()
	})).Core().V1().Nodes().Informer()
	if _, err := own.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed.Send() },
		UpdateFunc: func(any, any) { changed.Send() },
		DeleteFunc: func(any) { changed.Send() },
	}); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		own.RunWithContext(ctx)
	}()
	defer func() { <-ended }()
	if !cache.WaitForCacheSync(ctx.Done(), own.HasSynced) {
		return nil
	}
	changed.Send()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		pause := keepInterval
		if err := n.reconcile(ctx, own.GetStore()); err != nil && ctx.Err() == nil {
			n.Log.Error(err, "Failed to reconcile the node, retrying", "node", n.Name)
			changed.Send()
			pause = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// reconcile restores the Node's missing parts, and remembers those that others have set.
func (n *Node) reconcile(ctx context.Context, nodes cache.Store) error {
	object, exists, err := nodes.GetByKey(n.Name)
	if err != nil {
		return err
	}
	if !exists {
		return n.restore(ctx)
	}
	current, ok := object.(*corev1.Node)
	if !ok {
		return fmt.Errorf("%T is not a Node", object)
	}
	if current.DeletionTimestamp != nil {
		return nil // It has finalizers. The next event is its end.
	}
	forged := n.latest()
	if missing(current, forged) {
		if current, err = n.complete(ctx, forged); err != nil {
			return err
		}
	}
	remembered := memoryOf(current, forged)
	n.mu.Lock()
	n.uid, n.remembered = current.UID, remembered
	n.mu.Unlock()
	if !isReady(current) { // Kubernetes wrote so, while this process hung or no replica led.
		n.rewrite.Store(true)
		n.Changed.Send()
	}
	return n.store(ctx, remembered)
}

// latest returns the Node as it was last written.
func (n *Node) latest() *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last.DeepCopy()
}

// restore creates the Node again, with the cordon, labels and taints that it had. The ClusterRole may have been
// recreated, and the garbage collector deletes objects that the previous one owns.
func (n *Node) restore(ctx context.Context) error {
	wanted := n.latest()
	owners, err := n.owners(ctx)
	if err != nil {
		return err
	}
	wanted.OwnerReferences = owners
	now := metav1.Now()
	for i := range wanted.Status.Conditions {
		wanted.Status.Conditions[i].LastHeartbeatTime = now
	}
	n.mu.Lock()
	n.remembered.restore(wanted)
	n.mu.Unlock()
	created, err := n.Kube.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case kerrors.IsAlreadyExists(err):
		return nil // The watch lags.
	case err != nil:
		return fmt.Errorf("restoring node %q: %w", n.Name, err)
	}
	n.mu.Lock()
	n.uid = created.UID
	n.mu.Unlock()
	n.Log.Info("Recreated the node after it was deleted", "node", n.Name)
	return nil
}

// missing reports whether a Node lacks labels or the taint that the broker needs.
func missing(current, forged *corev1.Node) bool {
	for key, value := range forged.Labels {
		if is, ok := current.Labels[key]; !ok || is != value {
			return true
		}
	}
	return !hasTaint(current.Spec.Taints)
}

// complete sets the labels, the owner and the taint of wanted on the Node that exists.
func (n *Node) complete(ctx context.Context, wanted *corev1.Node) (updated *corev1.Node, err error) {
	nodes := n.Kube.CoreV1().Nodes()
	err = interrupted.OnError(retry.DefaultBackoff, kerrors.IsConflict, func() error {
		existing, err := nodes.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !n.owns(existing) {
			return errAnothers
		}
		if existing.Labels == nil {
			existing.Labels = map[string]string{}
		}
		maps.Copy(existing.Labels, wanted.Labels)
		existing.OwnerReferences = wanted.OwnerReferences
		if !hasTaint(existing.Spec.Taints) {
			existing.Spec.Taints = append(existing.Spec.Taints, wanted.Spec.Taints...)
		}
		updated, err = nodes.Update(ctx, existing, metav1.UpdateOptions{})
		return err
	})
	return updated, err
}

// isReady reports whether the conditions of a Node show that it is Ready.
func isReady(current *corev1.Node) bool {
	for i := range current.Status.Conditions {
		if c := &current.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
