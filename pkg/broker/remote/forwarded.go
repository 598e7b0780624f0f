package remote

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Forwarded is the state at a provider of a pod that a VirtualNode forwarded.
type Forwarded struct {
	// ShadowPod is the UID of its ShadowPod; "" if there is none.
	ShadowPod types.UID
	// Status is the status of the pod, as it may be shown; nil if there is no pod.
	Status *corev1.PodStatus
	// Ended means that the pod has ended by itself (placement.EndedByItself).
	Ended bool
	// Stopped means that the pod is being deleted, and none of its containers runs any more: a finalizer there keeps
	// it.
	Stopped bool
	// remakes means that the pod is being deleted, or was evicted.
	remakes bool
	// shadowOf and podOf are the UIDs of the pods here that both were made of; "" if that is not said, as by older
	// virtual kubelets.
	shadowOf, podOf types.UID
}

// Of returns the parts that were made for a pod, and not for an earlier one of the same name.
func (f Forwarded) Of(uid types.UID) Forwarded {
	if f.shadowOf != "" && f.shadowOf != uid {
		f.ShadowPod = ""
	}
	if f.podOf != "" && f.podOf != uid {
		f.Status = nil
	}
	f.Ended = f.Ended && f.podOf == uid // It may be an earlier pod of the name that has ended.
	return f
}

// Remaking reports whether Liqo's controller may be making the pod, for the first time or again: it makes one of each
// ShadowPod that has none.
func (f *Forwarded) Remaking() bool { return f.ShadowPod != "" && (f.Status == nil || f.remakes) }

// WithEnd returns the state of a pod that the provider has removed, with the end that its ShadowPod has kept.
func (f Forwarded) WithEnd(end *corev1.PodStatus) Forwarded {
	f.Status, f.Ended, f.remakes, f.podOf = end, true, false, f.shadowOf
	return f
}

const (
	// few is how many pods are asked for one by one, so many at once. For more of them all pods of the VirtualNode are
	// listed.
	few, atOnce = 10, 8
	// podsInChunk is how many pods a chunk has: they may have more than a megabyte each, in their specs.
	podsInChunk = 100
)

// Listing asks a provider for the named pods in a remote namespace. It continues where an attempt ended. It is used by
// one caller at a time.
type Listing struct {
	virtualNode, namespace string
	// names are those that are asked for one by one, and have no answer yet; nil if all pods are listed.
	names []string
	asked sets.Set[string]
	// shadowPods and pods are how far the lists were read; shadowPodsRead means that the first one is complete.
	shadowPods, pods untrusted.Progress
	shadowPodsRead   bool

	mu sync.Mutex
	// found has the results so far, left how many bytes of statuses may still be kept; guarded by mu.
	found map[string]Forwarded
	left  int
}

// NewListing returns a Listing of the pods that a VirtualNode forwarded. Pods of other VirtualNodes do not count.
func NewListing(virtualNode, namespace string, names []string) *Listing {
	l := &Listing{
		virtualNode: virtualNode, namespace: namespace, asked: sets.New(names...), found: map[string]Forwarded{},
		left: maxKept + len(names)*maxKeptOfPod,
	}
	if len(l.asked) <= few {
		l.names = sets.List(l.asked)
	}
	return l
}

// Found returns, by name, the state of the pods at the provider, without pods that do not exist there. It is complete
// once Continue was done.
func (l *Listing) Found() map[string]Forwarded { return l.found }

// Continue asks for the next pods, all of few or one chunk, and reports whether these were the last ones.
func (l *Listing) Continue(ctx context.Context, c *Connection) (done bool, err error) {
	// The pods are read last: a ShadowPod that no longer exists creates no other pod.
	options := metav1.ListOptions{LabelSelector: forge.LiqoOriginClusterNodeName + "=" + l.virtualNode}
	switch {
	case len(l.asked) <= few:
		l.names, err = l.each(ctx, c, options)
		return len(l.names) == 0, err
	case !l.shadowPodsRead:
		l.shadowPodsRead, err = untrusted.Next(ctx, c.shadowPods(l.namespace), options, &l.shadowPods, l.addShadowPod)
		return false, err
	}
	return untrusted.Next(ctx, c.pods(l.namespace), options, &l.pods, l.addPod)
}

// each asks for pods by name, and returns those without an answer.
func (l *Listing) each(ctx context.Context, c *Connection, options metav1.ListOptions) (unanswered []string, err error) {
	one := func(name string) error {
		options := options
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		if err := untrusted.List(ctx, c.shadowPods(l.namespace), options, l.addShadowPod); err != nil {
			return err
		}
		return untrusted.List(ctx, c.pods(l.namespace), options, l.addPod)
	}
	if len(l.names) == 1 {
		if err := one(l.names[0]); err != nil {
			return l.names, err
		}
		return nil, nil
	}
	errs := make([]error, len(l.names))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, name := range l.names {
		group.Go(func() error {
			errs[i] = one(name)
			return errs[i]
		})
	}
	err = group.Wait()
	for i, name := range l.names {
		if errs[i] != nil {
			unanswered = append(unanswered, name)
		}
	}
	return unanswered, err
}

// Forwarded returns the result of a complete Listing.
func (c *Connection) Forwarded(ctx context.Context, virtualNode, namespace string, names []string) (map[string]Forwarded, error) {
	for l := NewListing(virtualNode, namespace, names); ; {
		if done, err := l.Continue(ctx, c); err != nil {
			return nil, err
		} else if done {
			return l.Found(), nil
		}
	}
}

func (c *Connection) shadowPods(namespace string) untrusted.Lists {
	return untrusted.Lists{
		Client: c.Liqo.OffloadingV1beta1().RESTClient(), Namespace: namespace, Resource: "shadowpods", MetadataOnly: true,
	}
}

func (c *Connection) pods(namespace string) untrusted.Lists {
	return untrusted.Lists{Client: c.Kube.CoreV1().RESTClient(), Namespace: namespace, Resource: "pods", Limit: podsInChunk}
}

func (l *Listing) addShadowPod(shadow *object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name := string(shadow.Metadata.Name); l.asked.Has(name) {
		f := l.found[name]
		f.ShadowPod, f.shadowOf = types.UID(shadow.Metadata.UID), shadow.podUID()
		l.found[name] = f
	}
}

// maxKept and maxKeptOfPod bound the kept statuses of all pods that are asked about, in bytes: in all, and for each of
// them in addition. A kubelet writes at most 12 KiB of messages into the status of a pod.
const (
	maxKept      = 8 << 20
	maxKeptOfPod = 16 << 10
)

func (l *Listing) addPod(there *pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := string(there.Metadata.Name)
	if !l.asked.Has(name) {
		return
	}
	f := l.found[name]
	f.Status, f.podOf = untrusted.PodStatus(there.Status.status()), there.podUID()
	deleted := there.Metadata.DeletionTimestamp != ""
	f.Ended, f.Stopped = placement.EndedByItself(f.Status, deleted), deleted && placement.Stopped(f.Status)
	f.remakes = deleted || placement.DisruptedThere(&corev1.Pod{Status: *f.Status})
	if l.left -= f.Status.Size(); l.left < 0 {
		f.Status = untrusted.LeastStatus(f.Status)
	}
	l.found[name] = f
}

// DeleteShadowPod deletes a ShadowPod whose virtual kubelet is gone, by its UID.
func (c *Connection) DeleteShadowPod(ctx context.Context, namespace, name string, uid types.UID) error {
	err := c.Liqo.OffloadingV1beta1().ShadowPods(namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}

// End returns the status of a pod that a provider has removed, if its ShadowPod shows that it had ended
// (placement.EndOfShadowPod); nil otherwise.
func (c *Connection) End(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	shadow, err := c.Liqo.OffloadingV1beta1().ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || shadow.UID != uid {
		return nil, client.IgnoreNotFound(err)
	}
	return placement.EndOfShadowPod(shadow.Status.Phase, shadow.Spec.Pod.RestartPolicy), nil
}

// ShadowPod has the fields of a ShadowPod that show whether it should exist.
type ShadowPod struct {
	Name string
	UID  types.UID
	// Origin is the id of the cluster that forwarded it, NodeName the name of the VirtualNode there; "" if that is not
	// said.
	Origin, NodeName string
}

// ShadowPods calls each with the next ShadowPods in a remote namespace, of all forwarders, and reports whether these
// were the last ones. After an error it may be called with some of them again.
func (c *Connection) ShadowPods(
	ctx context.Context, namespace string, at *untrusted.Progress, each func(*ShadowPod),
) (done bool, err error) {
	return untrusted.Next(ctx, c.shadowPods(namespace), metav1.ListOptions{}, at, func(shadow *object) {
		m := &shadow.Metadata
		each(&ShadowPod{
			Name: string(m.Name), UID: types.UID(m.UID), Origin: string(m.Labels.Origin), NodeName: string(m.Labels.NodeName),
		})
	})
}
