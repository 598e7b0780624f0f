package providers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// probeWorkers is how many probes run at once. Each provider that does not answer occupies one until the probe's
// timeout, so that no provider waits for another as long as there are fewer of them.
const probeWorkers = 256

// setUpProbes registers the controller that probes each provider every ProbeInterval, as long as it has an object.
func (c *Controller) setUpProbes(mgr manager.Manager) error {
	created := predicate.Funcs{
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("probe").
		For(&v1alpha1.ProviderCluster{}, builder.WithPredicates(created)).
		WatchesRawSource(c.probes.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: probeWorkers, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return c.reconcileProbe(ctx, r.Name)
		}))
	if err != nil {
		return fmt.Errorf("probe controller: %w", err)
	}
	return nil
}

// reconcileProbe probes a provider, and requeues it until its object is gone. Jitter keeps the probes apart.
func (c *Controller) reconcileProbe(ctx context.Context, id string) (ctrl.Result, error) {
	var pc v1alpha1.ProviderCluster
	if err := c.Client.Get(ctx, types.NamespacedName{Name: id}, &pc, client.UnsafeDisableDeepCopy); err != nil {
		if kerrors.IsNotFound(err) {
			c.forgetLeases(id, nil)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	virtualNodes, _, err := peering.VirtualNodes(ctx, c.Client, c.Selector, id)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !c.State.Knows(id) {
		c.forgetLeases(id, nil)
		return ctrl.Result{}, nil // It is requeued once it is known.
	}
	probe := c.probe(ctx, id, virtualNodes)
	c.forgetLeases(id, virtualNodes)
	if ctx.Err() == nil {
		for _, changed := range c.State.ObserveProbe(id, probe) {
			c.Queue.Add(types.NamespacedName{Name: changed})
		}
	}
	return ctrl.Result{RequeueAfter: wait.Jitter(c.ProbeInterval, 0.2)}, nil
}

// probe probes the provider's API server and reads the leases of its virtual kubelets in parallel, so that a provider
// that does not answer does not delay the state of its virtual kubelets.
func (c *Controller) probe(ctx context.Context, id string, virtualNodes []*offloadingv1beta1.VirtualNode) state.Probe {
	probe := state.Probe{Began: c.Clock.Now(), Kubelets: make(map[string]bool, len(virtualNodes))}
	var leases sync.WaitGroup
	leases.Go(func() {
		for _, vn := range virtualNodes {
			lease, known := c.kubeletLease(ctx, id, vn.Namespace, vn.Name)
			if known {
				probe.Kubelets[vn.Name] = lease.live
			}
			if lease.answered.After(probe.Reached) {
				probe.Reached = lease.answered
			}
		}
	})
	c.probeAPIServer(ctx, id, virtualNodes, &probe)
	leases.Wait()
	probe.Ended = c.Clock.Now()
	return probe
}

// probeAPIServer tries the identities of a provider until its API server answers one. If it answers none, the provider
// is alive if it has rejected one, or if there is no identity.
func (c *Controller) probeAPIServer(ctx context.Context, id string, virtualNodes []*offloadingv1beta1.VirtualNode, probe *state.Probe) {
	ctx, cancel := context.WithTimeout(ctx, c.ProbeTimeout)
	defer cancel()
	probe.Alive, probe.Reason, probe.Problem = true, v1alpha1.ReasonNoKubeconfig, "no kubeconfig"
	asked := false
	for _, vn := range virtualNodes {
		at := remote.PlaceOf(vn)
		connection := c.Connections.Get(at)
		if connection == nil {
			if why := c.Connections.Refused(at); why != "" && !asked {
				probe.Problem = "its kubeconfig is not used: " + why
			}
			continue
		}
		took, err := connection.Probe(ctx)
		if err == nil {
			probe.Answered, probe.Took, probe.Alive, probe.Reason, probe.Problem = true, took, false, "", ""
			return
		}
		if reason, problem := c.outcome(ctx, id, connection, err); reason != "" || !asked || !probe.Alive {
			probe.Alive, probe.Reason, probe.Problem = reason != "", reason, problem
		}
		asked = true
	}
}

// outcome returns why a probe was not answered as by an API server that is ready. The reason is "" if the provider is
// silent.
func (c *Controller) outcome(ctx context.Context, id string, connection *remote.Connection, err error) (reason, problem string) {
	problem = untrusted.Text(err.Error())
	if untrusted.Rejected(err) {
		return v1alpha1.ReasonRejects, problem
	}
	if answer := (*remote.AnswerError)(nil); errors.As(err, &answer) {
		if does := c.reads(ctx, id, connection); does != "" {
			return v1alpha1.ReasonReadyzFails, problem + ", but " + does
		}
	}
	if ctx.Err() != nil {
		problem = fmt.Sprintf("no answer within %s", c.ProbeTimeout)
	}
	return "", problem
}

// mostRead is in how many namespaces it is tried whether a provider that is not ready reads pods.
const mostRead = 3

// reads returns how a provider that is not ready shows that it is not silent: it reads pods, or rejects that. One whose
// etcd does not answer reads none. It is "" for that, and without a namespace there, in which it could be asked.
func (c *Controller) reads(ctx context.Context, id string, connection *remote.Connection) (does string) {
	known, _ := c.State.Provider(id)
	namespaces := slices.Sorted(maps.Values(known.RemoteNamespaces))
	for _, namespace := range namespaces[:min(len(namespaces), mostRead)] {
		err := connection.Reads(ctx, namespace)
		switch {
		case err == nil:
			return "it serves reads of pods"
		case !untrusted.Rejected(err):
			return ""
		}
		does = "it rejects reads of pods" // Without its etcd, too, in a namespace that it removes; so others are tried.
	}
	return does
}

// kubeletLease is the state of the leader election lease of a VirtualNode's virtual kubelets: whether it is live, and
// when the provider last answered its holder, by the clock of the broker; zero if that is not known.
type kubeletLease struct {
	live     bool
	answered time.Time
}

// kubeletLease reads a lease. Known is false if the API server did not answer.
func (c *Controller) kubeletLease(ctx context.Context, id, namespace, name string) (lease kubeletLease, known bool) {
	ctx, cancel := context.WithTimeout(ctx, c.ProbeTimeout)
	defer cancel()
	found, err := c.Home.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return lease, kerrors.IsNotFound(err)
	}
	now := c.Clock.Now()
	renewed := c.renewedAt(leaseKey{id, namespace, name}, found, now)
	lease.live = leaseIsLive(found, renewed, now)
	by, text, _ := strings.Cut(found.Annotations[v1alpha1.AnsweredAgoAnnotation], " ")
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 && by == ptr.Deref(found.Spec.HolderIdentity, "") {
		lease.answered = renewed.Add(-ago)
	}
	return lease, true
}

// leaseKey is a lease of a virtual kubelet, and the id of its provider.
type leaseKey struct{ provider, namespace, name string }

// observedLease is when the broker first saw a renewal, by its own clock, as client-go's elector does: the clock of the
// holder may differ.
type observedLease struct{ renewal, at time.Time }

// renewedAt returns when a lease was renewed, by the clock of the broker. The first look at a lease has nothing but the
// holder's clock to tell a live lease from an old one; the next renewal corrects it.
func (c *Controller) renewedAt(key leaseKey, lease *coordinationv1.Lease, now time.Time) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, known := c.leases[key]
	switch renewal := lease.Spec.RenewTime.Time; {
	case !known && renewal.Before(now):
		seen = observedLease{renewal: renewal, at: renewal}
	case !known, !seen.renewal.Equal(renewal):
		seen = observedLease{renewal: renewal, at: now}
	}
	c.leases[key] = seen
	return seen.at
}

// forgetLeases drops the observed leases of a provider, except for its present VirtualNodes.
func (c *Controller) forgetLeases(id string, virtualNodes []*offloadingv1beta1.VirtualNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.leases, func(key leaseKey, _ observedLease) bool {
		return key.provider == id && !slices.ContainsFunc(virtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool {
			return vn.Namespace == key.namespace && vn.Name == key.name
		})
	})
}

// leaseIsLive reports whether a lease was renewed at most twice its duration ago: another replica of the virtual
// kubelet may need that long to acquire it. The lease of a holder that is still connecting is not live: pods assigned
// to it would wait for as long.
func leaseIsLive(lease *coordinationv1.Lease, renewed, now time.Time) bool {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	if lease.Annotations[v1alpha1.ConnectingAnnotation] == *s.HolderIdentity {
		return false
	}
	return now.Sub(renewed) <= 2*time.Duration(*s.LeaseDurationSeconds)*time.Second
}
