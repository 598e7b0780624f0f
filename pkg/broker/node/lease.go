package node

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// leases makes the existing Node own its lease, and removes the annotation of virtual kubelets that renewed it
// meanwhile. virtual-kubelet's lease controller sets an owner only if there is none, with the UID of its last status
// update (newLease in node/lease_controller_v1.go, v1.11.0), so after a restoration the garbage collector would delete
// the lease again.
type leases struct {
	coordinationclient.LeaseInterface
	node string
	uid  func() types.UID
}

func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Create(ctx, l.owned(lease), opts)
}

func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Update(ctx, l.owned(lease), opts)
}

func (l leases) owned(lease *coordinationv1.Lease) *coordinationv1.Lease {
	out := lease.DeepCopy()
	delete(out.Annotations, v1alpha1.RenewedByAnnotation)
	uid := l.uid()
	if uid == "" {
		return out
	}
	out.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: l.node, UID: uid,
	}}
	return out
}
