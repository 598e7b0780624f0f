// Package providers controls the provider clusters: it creates their ProviderCluster objects, probes them, writes their
// status, and updates them in the scheduler.
//
// The scheduler gets the content of the status, by one translation (pkg/placement). So the status, an explanation and a
// decision differ in their age only.
package providers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Config is everything that the controller needs.
type Config struct {
	Log   logr.Logger
	Clock clock.PassiveClock
	// Client reads from the cache and writes; Home reads leases from the API server.
	Client client.Client
	Home   kubernetes.Interface

	State       *state.Federation
	Connections *remote.Connections
	// Restore returns once the assigned pods are counted in State.
	Restore func(ctx context.Context) error
	// Leftovers checks providers after an outage.
	Cleaner *termination.Cleaner
	// Queue requeues providers.
	Queue *requeue.Queue
	// Changed is called after a change that may concern the pods of a provider, the unassigned pods and the Node.
	Changed func(ctx context.Context, id string)

	// NodeName is the name of the broker's Node; Selector selects VirtualNodes by their labels.
	NodeName string
	Selector labels.Selector
	// ProbeInterval and ProbeTimeout apply to the probe of each provider.
	ProbeInterval, ProbeTimeout time.Duration
	// StatusInterval is the least time between two writes of one status.
	StatusInterval time.Duration
}

// Controller reconciles provider clusters, by id.
type Controller struct {
	Config

	// probes requeues the probes of providers.
	probes requeue.Queue

	mu sync.Mutex
	// latest has, by id, the objects with the status as it is now, which may not be written yet. They are never
	// changed. Guarded by mu.
	latest map[string]*v1alpha1.ProviderCluster
	// written has, by id, the last write of the status. Guarded by mu.
	written map[string]write
	// leases are the leases of the virtual kubelets, as they were last observed; guarded by mu.
	leases map[leaseKey]observedLease
}

// New returns a Controller, which does nothing before SetUp.
func New(cfg Config) *Controller {
	return &Controller{
		Config: cfg, latest: map[string]*v1alpha1.ProviderCluster{}, written: map[string]write{},
		leases: map[leaseKey]observedLease{},
	}
}

// SetUp registers the controllers of providers and of their probes with the manager; they run on the leader.
func (c *Controller) SetUp(mgr manager.Manager) error {
	by := func(id func(client.Object) string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if name := id(o); name != "" {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
			}
			return nil
		})
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("provider").
		For(&v1alpha1.ProviderCluster{}, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(update event.UpdateEvent) bool { return !c.wrote(update) },
		})).
		Watches(&offloadingv1beta1.VirtualNode{}, by(func(o client.Object) string {
			if vn, ok := o.(*offloadingv1beta1.VirtualNode); ok {
				return string(vn.Spec.ClusterID)
			}
			return ""
		})).
		Watches(&offloadingv1beta1.NamespaceMap{}, by(func(o client.Object) string { return o.GetLabels()[consts.RemoteClusterID] })).
		Watches(&liqov1beta1.ForeignCluster{}, by(func(o client.Object) string {
			if fc, ok := o.(*liqov1beta1.ForeignCluster); ok {
				return string(fc.Spec.ClusterID)
			}
			return ""
		})).
		Watches(&authv1beta1.ResourceSlice{}, by(func(o client.Object) string {
			if slice, ok := o.(*authv1beta1.ResourceSlice); ok {
				return peering.AskedOf(slice)
			}
			return ""
		})).
		WatchesRawSource(c.Queue.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return c.reconcile(ctx, r.Name)
		}))
	if err != nil {
		return fmt.Errorf("provider controller: %w", err)
	}
	return c.setUpProbes(mgr)
}

// reconcile updates one provider cluster: its object, its data in the scheduler, its status.
func (c *Controller) reconcile(ctx context.Context, id string) (ctrl.Result, error) {
	// 1. Its state in the API, and the state of its pods.
	if err := c.Restore(ctx); err != nil {
		return ctrl.Result{}, err
	}
	in, err := c.read(ctx, id)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(in.virtualNodes) == 0 {
		return ctrl.Result{}, c.remove(ctx, id, in)
	}
	pc, err := c.providerCluster(ctx, id)
	if err != nil {
		return ctrl.Result{}, err
	}

	// 2. The connections; the probes find them.
	for _, vn := range in.virtualNodes {
		if err := c.Connections.Refresh(ctx, vn, c.Clock.Now()); err != nil {
			c.Log.Error(err, "Failed to connect to a provider", "provider", id) // Its probe will fail, with the reason.
		}
	}
	knew := c.State.Knows(id)
	for _, gone := range c.State.SetProvider(id, in.spec(pc), &pc.Status) {
		c.Connections.Remove(scheduler.Place{Provider: id, VirtualNode: gone})
	}
	if !knew {
		c.probes.Add(types.NamespacedName{Name: id})
	}

	// 3. The status is built from the state. The scheduler gets the provider as the status shows it.
	known, ok := c.State.Provider(id)
	if !ok {
		return ctrl.Result{}, nil // It was removed meanwhile.
	}
	updated := ptr.To(*pc) // It shares all but the status, and neither is changed.
	updated.Status = statusOf(pc, &known, in, c.NodeName)
	translated := placement.Provider(updated, in.virtualNodes, in.namespaceMaps)
	now := c.Clock.Now()
	updated.Status.Summary.Price = translated.Prices.PerCPU(now)
	c.mu.Lock()
	c.latest[id] = updated
	c.mu.Unlock()
	if c.State.Schedule(translated) {
		c.Changed(ctx, id)
	}

	// 4. The status is written, if it is time.
	after, err := c.writeStatus(ctx, pc, updated)
	if err != nil {
		return ctrl.Result{}, err
	}

	// 5. After an outage: does it still run pods that were moved away? The provider may be slow, so other workers ask.
	after = earliest(c.Cleaner.Request(id), after)
	if next, ok := translated.Prices.Next(now); ok { // Waiting pods are tried again.
		after = earliest(next.Sub(now), after)
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// earliest returns the shorter of two waits; 0 means no wait.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// objects are the objects of a provider in the API, besides its ProviderCluster.
type objects struct {
	// virtualNodes are those that the broker uses, by name.
	virtualNodes []*offloadingv1beta1.VirtualNode
	// sharedNames are names that VirtualNodes of several namespaces have. Such VirtualNodes get no new pods: tries,
	// refusals and decisions are recorded with the name only. Their existing pods stay.
	sharedNames sets.Set[string]
	// namespaceMaps are those in the provider's own tenant namespace.
	namespaceMaps []*offloadingv1beta1.NamespaceMap
	// denied are the ResourceSlices that the provider denied.
	denied []*authv1beta1.ResourceSlice
	// connected means that Liqo's network to the provider is established, or not Liqo's concern. Unknown is not
	// connected.
	connected bool
}

func (c *Controller) read(ctx context.Context, id string) (in objects, err error) {
	if in.virtualNodes, in.sharedNames, err = peering.VirtualNodes(ctx, c.Client, c.Selector, id); err != nil {
		return in, err
	}
	if in.namespaceMaps, err = peering.NamespaceMaps(ctx, c.Client, id); err != nil {
		return in, err
	}
	if in.denied, err = c.deniedSlices(ctx, id); err != nil {
		return in, err
	}
	in.connected, err = peering.NetworkConnected(ctx, c.Client, id)
	return in, err
}

// spec returns the state of the provider in the API that decides about its pods.
func (in *objects) spec(pc *v1alpha1.ProviderCluster) state.ProviderSpec {
	spec := state.ProviderSpec{
		Enabled: pc.Spec.IsEnabled(), Draining: pc.Spec.Drain,
		VirtualNodes: map[string]bool{}, RemoteNamespaces: peering.RemoteNamespaces(in.namespaceMaps),
	}
	for _, vn := range in.virtualNodes {
		spec.VirtualNodes[vn.Name] = vn.DeletionTimestamp != nil
	}
	return spec
}

// providerCluster reads the object of a provider, and creates it if there is none.
func (c *Controller) providerCluster(ctx context.Context, id string) (*v1alpha1.ProviderCluster, error) {
	pc := &v1alpha1.ProviderCluster{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: id}, pc)
	if !kerrors.IsNotFound(err) {
		return pc, err
	}
	pc = &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	if err := c.Client.Create(ctx, pc); err != nil && !kerrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("ProviderCluster %s: %w", id, err)
	}
	return pc, nil
}

// remove forgets a cluster that has no VirtualNode any more. The connections stay until Liqo has removed its
// namespaces: pods that leave it are asked about.
func (c *Controller) remove(ctx context.Context, id string, in objects) error {
	known := c.State.RemoveProvider(id)
	if len(peering.RemoteNamespaces(in.namespaceMaps)) == 0 {
		c.Connections.RemoveOf(id)
	}
	c.Cleaner.Forget(id)
	c.mu.Lock()
	delete(c.latest, id)
	delete(c.written, id)
	c.mu.Unlock()
	if known {
		c.Changed(ctx, id)
	}
	return c.writeNotPeered(ctx, id, in.denied)
}

// writeNotPeered deletes the object of a cluster without VirtualNodes, unless an administrator has set anything in it.
// While the cluster denies slices there is an object, which has the reason.
func (c *Controller) writeNotPeered(ctx context.Context, id string, denied []*authv1beta1.ResourceSlice) error {
	var pc v1alpha1.ProviderCluster
	switch err := c.Client.Get(ctx, client.ObjectKey{Name: id}, &pc); {
	case kerrors.IsNotFound(err) && len(denied) > 0:
		made, err := c.providerCluster(ctx, id)
		if err != nil {
			return err
		}
		pc = *made
	case err != nil:
		return client.IgnoreNotFound(err)
	case len(denied) == 0 && !administered(&pc.Spec):
		// The version: an administrator may have set something that the cache does not show yet.
		return client.IgnoreNotFound(c.Client.Delete(ctx, &pc, client.Preconditions{UID: &pc.UID, ResourceVersion: &pc.ResourceVersion}))
	}
	updated := pc.DeepCopy()
	updated.Status = notPeered(&pc, denied)
	if equality.Semantic.DeepEqual(&pc.Status, &updated.Status) {
		return nil
	}
	return client.IgnoreNotFound(c.Client.Status().Patch(ctx, updated, client.MergeFrom(&pc)))
}

// administered reports whether anything in a spec differs from the defaults.
func administered(spec *v1alpha1.ProviderClusterSpec) bool {
	return !spec.IsEnabled() || spec.Cordoned || spec.Drain || len(spec.Attributes) > 0 ||
		len(spec.Prices) > 0 || spec.AcceptAdvertisedPrices
}

// Sibling returns a VirtualNode of a provider, the first by name; "" if it has none.
func (c *Controller) Sibling(ctx context.Context, provider string) (string, error) {
	virtualNodes, _, err := peering.VirtualNodes(ctx, c.Client, c.Selector, provider)
	if err != nil || len(virtualNodes) == 0 {
		return "", err
	}
	return virtualNodes[0].Name, nil
}
