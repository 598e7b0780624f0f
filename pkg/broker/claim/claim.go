package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// leaseName is the lease of the claim, in the namespace of the Nodes' leases, where the broker may write one.
const leaseName = "liqo-broker-vk"

const (
	// duration is how long a claim lasts without a renewal.
	duration = time.Minute
	// interval is how often the leader renews it.
	interval = 15 * time.Second
	// observation is how long a claim that seems to have lapsed is watched: the clocks of machines differ.
	observation = 45 * time.Second
	// requestTimeout is the deadline of a request.
	requestTimeout = 10 * time.Second
)

// ErrClaimed is the error of an installation in a cluster that another one has claimed.
var ErrClaimed = errors.New("another broker serves this cluster, and only one is allowed")

// Claim claims the cluster for one installation.
type Claim struct {
	Log  logr.Logger
	Kube kubernetes.Interface
	// Namespace and Node identify the installation.
	Namespace, Node string
}

// Acquire claims the cluster for the installation. It returns ErrClaimed if another installation has claimed it and
// renews its claim, and nil if ctx ends first.
func (c *Claim) Acquire(ctx context.Context) error {
	var seen *metav1.MicroTime
	observed := time.Duration(0)
	for {
		lease, err := c.take(ctx, func(lease *coordinationv1.Lease) bool {
			return observed >= observation && lease.Spec.RenewTime.Equal(seen)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case kerrors.IsForbidden(err): // The manifests are older.
			c.Log.Error(err, "Not allowed to claim the cluster, a second broker would not be detected; apply deploy/broker.yaml")
			return nil
		case kerrors.IsConflict(err), kerrors.IsAlreadyExists(err):
			continue
		case err != nil:
			return fmt.Errorf("claiming the cluster: %w", err)
		case lease == nil:
			return nil
		}
		renewed := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
		if time.Since(renewed.Time).Abs() < duration || seen != nil && !renewed.Equal(seen) {
			return c.claimedBy(lease)
		}
		seen = &renewed
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
			observed += interval
		}
	}
}

// Run renews the claim until ctx ends. It returns ErrClaimed if another installation has the claim: this one has not
// renewed it for long.
func (c *Claim) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		lease, err := c.take(ctx, func(*coordinationv1.Lease) bool { return false })
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !kerrors.IsForbidden(err):
			c.Log.Error(err, "Cannot renew the claim of the cluster")
		case lease != nil:
			return c.claimedBy(lease)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take claims the cluster, or renews the claim. It returns the lease if another installation has it and it has not
// lapsed.
func (c *Claim) take(ctx context.Context, lapsed func(*coordinationv1.Lease) bool) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, err := c.leases().Get(ctx, leaseName, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		_, err = c.leases().Create(ctx, c.renewed(&coordinationv1.Lease{}), metav1.CreateOptions{})
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && holder != c.identity() && !lapsed(lease) {
		return lease, nil
	}
	_, err = c.leases().Update(ctx, c.renewed(lease), metav1.UpdateOptions{})
	return nil, err
}

func (c *Claim) leases() coordinationclient.LeaseInterface {
	return c.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
}

// identity names the installation.
func (c *Claim) identity() string { return c.Namespace + "/" + c.Node }

// renewed returns the lease as a claim of this installation.
func (c *Claim) renewed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	out := lease.DeepCopy()
	out.Namespace, out.Name = corev1.NamespaceNodeLease, leaseName
	out.Spec.HolderIdentity, out.Spec.RenewTime = ptr.To(c.identity()), ptr.To(metav1.NowMicro())
	out.Spec.LeaseDurationSeconds = ptr.To(int32(duration.Seconds()))
	return out
}

func (c *Claim) claimedBy(lease *coordinationv1.Lease) error {
	return fmt.Errorf("%w: NAMESPACE/NODE of the other is %s, of this one %s (--namespace, --broker-node); remove one of the two; "+
		"this one starts within two minutes after the other has stopped",
		ErrClaimed, ptr.Deref(lease.Spec.HolderIdentity, ""), c.identity())
}
