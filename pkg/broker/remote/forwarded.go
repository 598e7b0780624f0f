package remote

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Forwarded is what a provider has of a pod that a VirtualNode forwarded.
type Forwarded struct {
	// ShadowPod is the UID of its ShadowPod; "" if there is none.
	ShadowPod types.UID
	// Status is that of the pod, as it may be shown; nil if there is no pod.
	Status *corev1.PodStatus
	// Ended means that the pod has ended by itself (placement.EndedByItself).
	Ended bool
	// Stopped means that the pod is being deleted, and none of its containers runs any more: a finalizer there keeps it.
	Stopped bool
	// shadowOf and podOf are the UIDs of the pods here that both were made of; "" if that is not said, as by older virtual
	// kubelets.
	shadowOf, podOf types.UID
}

// Of returns what of it was made of a pod, and not of an earlier one of the same name.
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

// WithEnd returns what a provider has of a pod that it has removed, with the end that its ShadowPod has kept.
func (f Forwarded) WithEnd(end *corev1.PodStatus) Forwarded {
	f.Status, f.Ended, f.podOf = end, true, f.shadowOf
	return f
}

// few is how many pods are asked for one by one. For more of them all pods of the VirtualNode are listed.
const few = 4

// Forwarded returns, by name, what a provider has of the named pods in a remote namespace, without those of which it has
// nothing. What other VirtualNodes forwarded does not count. Without names it asks whether the provider answers at all.
func (c *Connection) Forwarded(ctx context.Context, virtualNode, namespace string, names []string) (map[string]Forwarded, error) {
	options := forwardedBy(virtualNode)
	asked, found := sets.New(names...), map[string]Forwarded{}
	if len(names) == 0 {
		return found, distrust.Try(ctx, c.shadowPods(namespace), options)
	}
	selectors := []string{""}
	if len(names) <= few {
		selectors = selectors[:0]
		for name := range asked {
			selectors = append(selectors, fields.OneTermEqualSelector(metav1.ObjectNameField, name).String())
		}
	}
	for _, options.FieldSelector = range selectors {
		if err := c.addShadowPods(ctx, namespace, options, asked, found); err != nil {
			return nil, err
		}
		// The pods come last: the ShadowPod of one that is not there any more makes no other.
		if err := c.addPods(ctx, namespace, options, asked, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// forwardedBy selects what a VirtualNode forwarded.
func forwardedBy(virtualNode string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: forge.LiqoOriginClusterNodeName + "=" + virtualNode}
}

func (c *Connection) shadowPods(namespace string) distrust.Lists {
	return distrust.Lists{Client: c.Liqo.OffloadingV1beta1().RESTClient(), Namespace: namespace, Resource: "shadowpods"}
}

func (c *Connection) addShadowPods(ctx context.Context, namespace string, options metav1.ListOptions, asked sets.Set[string],
	found map[string]Forwarded,
) error {
	return distrust.List(ctx, c.shadowPods(namespace), options, func(shadow *object) {
		if name := string(shadow.Metadata.Name); asked.Has(name) {
			found[name] = Forwarded{ShadowPod: types.UID(shadow.Metadata.UID), shadowOf: shadow.podUID()}
		}
	})
}

// maxKept and maxKeptOfPod bound what is kept of the statuses of all pods that are asked about, in bytes: in all, and for each
// of them in addition. A kubelet writes at most 12 KiB of messages into the status of a pod.
const (
	maxKept      = 8 << 20
	maxKeptOfPod = 16 << 10
)

func (c *Connection) addPods(ctx context.Context, namespace string, options metav1.ListOptions, asked sets.Set[string],
	found map[string]Forwarded,
) error {
	left := maxKept + len(asked)*maxKeptOfPod
	pods := distrust.Lists{Client: c.Kube.CoreV1().RESTClient(), Namespace: namespace, Resource: "pods"}
	return distrust.List(ctx, pods, options, func(there *pod) {
		name := string(there.Metadata.Name)
		if !asked.Has(name) {
			return
		}
		f := found[name]
		f.Status, f.podOf = distrust.PodStatus(there.Status.status()), there.podUID()
		deleted := there.Metadata.DeletionTimestamp != ""
		f.Ended, f.Stopped = placement.EndedByItself(f.Status, deleted), deleted && placement.Stopped(f.Status)
		if left -= f.Status.Size(); left < 0 {
			f.Status = distrust.LeastStatus(f.Status)
		}
		found[name] = f
	})
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

// End returns the status of a pod that a provider has removed, if its ShadowPod shows that it had ended (placement.EndOfShadowPod);
// nil otherwise.
func (c *Connection) End(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	shadow, err := c.Liqo.OffloadingV1beta1().ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || shadow.UID != uid {
		return nil, client.IgnoreNotFound(err)
	}
	return placement.EndOfShadowPod(shadow.Status.Phase, shadow.Spec.Pod.RestartPolicy), nil
}

// ShadowPod is what is read of a ShadowPod to find out whether it is to be there.
type ShadowPod struct {
	Name string
	UID  types.UID
	// Origin is the id of the cluster that forwarded it, NodeName the name of the VirtualNode there; "" if that is not said.
	Origin, NodeName string
}

// ShadowPods calls each with the ShadowPods in a remote namespace, whatever forwarded them.
func (c *Connection) ShadowPods(ctx context.Context, namespace string, each func(*ShadowPod)) error {
	return distrust.List(ctx, c.shadowPods(namespace), metav1.ListOptions{}, func(shadow *object) {
		m := &shadow.Metadata
		each(&ShadowPod{
			Name: string(m.Name), UID: types.UID(m.UID), Origin: string(m.Labels.Origin), NodeName: string(m.Labels.NodeName),
		})
	})
}
