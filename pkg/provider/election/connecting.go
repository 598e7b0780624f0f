package election

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// leases are a client's leases. The holder annotates its lease: whether it is still connecting or serves its pods, and
// when its provider last answered.
type leases struct {
	coordinationclient.LeasesGetter
	identity string
	serving  func() bool
	answered func() time.Time
}

func (l leases) Leases(namespace string) coordinationclient.LeaseInterface {
	return leasesIn{LeaseInterface: l.LeasesGetter.Leases(namespace), leases: l}
}

type leasesIn struct {
	coordinationclient.LeaseInterface
	leases leases
}

func (l leasesIn) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Create(ctx, l.leases.annotated(lease), opts)
}

func (l leasesIn) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Update(ctx, l.leases.annotated(lease), opts)
}

// annotated returns the lease, with the annotation as long as the replica connects.
func (l leases) annotated(lease *coordinationv1.Lease) *coordinationv1.Lease {
	out := lease.DeepCopy()
	delete(out.Annotations, v1alpha1.ConnectingAnnotation)
	if !l.serving() {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, v1alpha1.ConnectingAnnotation, l.identity)
	}
	delete(out.Annotations, v1alpha1.AnsweredAgoAnnotation)
	if at := l.answered(); !at.IsZero() {
		ago := time.Since(at).Round(time.Millisecond)
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, v1alpha1.AnsweredAgoAnnotation, l.identity+" "+ago.String())
	}
	return out
}
