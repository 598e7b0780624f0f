package aggregator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// reconcileTimeout bounds the requests of one pass over all slices.
	reconcileTimeout = time.Minute
	// afterConflict is the time after which a slice that changed during the decision is retried.
	afterConflict = time.Second
	// statusRecheck is how often a provider whose status is missing is checked, statusGrace how long the broker waits
	// for it.
	statusRecheck = time.Second
	statusGrace   = time.Minute
)

// Config of the offers.
type Config struct {
	// Class is the class of the ResourceSlices that the broker decides on.
	Class authv1beta1.ResourceSliceClass
	Rules share.Rules
	// Providers selects the VirtualNodes of the providers by their labels.
	Providers labels.Selector
	// Interval is the least time between an offer and the next larger one to the same slice.
	Interval time.Duration
	// Reclaim is told, after each decision, by user of a slice which amounts its pods use beyond the grant that others
	// have a right to and lack; nil is told nothing.
	Reclaim func(map[scheduler.Account]resources.Amounts)
	// ReclaimAfter is how long pods run beyond the grants of their consumer meanwhile (state.Config).
	ReclaimAfter time.Duration
	// Guard must be complete before a grant is made or increased; nil is not required.
	Guard *admission.Guard
	// IngressClasses, LoadBalancerClasses and StorageClasses are offered to every consumer.
	IngressClasses      []liqov1beta1.IngressType
	LoadBalancerClasses []liqov1beta1.LoadBalancerType
	StorageClasses      []liqov1beta1.StorageType
}

// reconciler decides about all slices at once: they share one sum.
type reconciler struct {
	cfg    Config
	client client.Client
	// live reads the API itself: with a cache that lacks the last offers two slices could be granted the same
	// resources.
	live    client.Reader
	events  record.EventRecorder
	metrics *Metrics
	now     func() time.Time
	// requested is the request of each slice at the last decision. Only the one worker of the controller uses it.
	requested map[types.NamespacedName]resources.Amounts
	// former has the recent grants. Only that worker uses it.
	former former
	// unknownSince is the time since when providers are not known, by their ids. Only that worker uses it.
	unknownSince map[string]time.Time
}

// SetUp registers the controller with the manager; it runs on the leader, and counts in metrics.
func SetUp(mgr manager.Manager, cfg Config, metrics *Metrics) error {
	r := &reconciler{
		cfg: cfg, client: mgr.GetClient(), live: mgr.GetAPIReader(), metrics: metrics, now: time.Now, former: former{},
		events: untrusted.Recorder{EventRecorder: mgr.GetEventRecorderFor("liqo-broker")}, //nolint:staticcheck // As the broker's own events.
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("offer").
		Watches(&authv1beta1.ResourceSlice{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(r.isOurs))).
		Watches(&authv1beta1.Tenant{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ConsumerCluster{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ProviderCluster{}, all, builder.WithPredicates(supplyChanged())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcileTimeout, SkipNameValidation: ptr.To(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, time.Minute),
		}).
		Complete(r)
}

// isOurs reports whether a slice has our class and comes from a consumer.
func (r *reconciler) isOurs(o client.Object) bool {
	slice, ok := o.(*authv1beta1.ResourceSlice)
	return ok && slice.Spec.Class == r.cfg.Class && slice.Labels[consts.ReplicationStatusLabel] == "true" &&
		slice.Labels[consts.ReplicationOriginLabel] != "" && slice.Spec.ConsumerClusterID != nil
}

// supplyChanged passes changes of the sum or the labels: the KPIs in the status change all the time.
func supplyChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ProviderCluster)
		after, ok2 := e.ObjectNew.(*v1alpha1.ProviderCluster)
		return !ok || !ok2 || before.Generation != after.Generation ||
			!equality.Semantic.DeepEqual(before.Status.Resources.Granted, after.Status.Resources.Granted)
	}}
}

// Reconcile decides about all slices and writes the offers that have changed.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	// 1. The available sum, the limits and the slices are read.
	var providers v1alpha1.ProviderClusterList
	if err := r.client.List(ctx, &providers); err != nil {
		return ctrl.Result{}, fmt.Errorf("ProviderClusters: %w", err)
	}
	switch wait, err := r.awaitsProviders(ctx, providers.Items); {
	case err != nil:
		return ctrl.Result{}, err
	case wait:
		return ctrl.Result{RequeueAfter: statusRecheck}, nil
	}
	available := supplyOf(providers.Items)
	rules := r.cfg.Rules
	consumers, limits, shares, err := r.terms(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	rules.Limits, rules.Shares = limits, shares
	candidates, foreign, err := r.slices(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	use, err := r.running(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	running := use.all
	if shares != nil {
		// Pods at no provider take nothing from others: the grant of their consumer bounds them when they are assigned.
		running = use.placed
	}

	// 2. The offers are decided.
	now := r.now()
	requests := make([]share.Slice, 0, len(candidates))
	requested := make(map[types.NamespacedName]resources.Amounts, len(candidates))
	decided := sets.New[scheduler.Account]()
	for _, a := range candidates {
		s := sliceOf(a.slice, a.mode, r.requested[nameOf(a.slice)], now, r.cfg.Interval)
		s.Running = running[a.user]
		s.Former = r.former.observe(a.user, s.Granted, now, r.cfg.Interval)
		decided.Insert(a.user)
		requests, requested[s.Name] = append(requests, s), s.Requested
	}
	requests = append(requests, r.gone(running, foreign, decided, now)...)
	requests = assignUnlabelled(requests, running, foreign)
	decision := share.Decide(available.sum, rules, requests)
	offers := decision.Offers

	// 3. The offers are written. Grants shrink first, because others grow by the released resources.
	total := available.sum.Scale(r.cfg.Rules.Overcommit)
	r.metrics.set(total, grantsPerConsumer(requests[:len(candidates)], offers))
	w := &writer{reconciler: r, free: share.NewBudget(total, rules.Limits), labels: available.labels(), now: now}
	pending := make([]*pendingOffer, len(candidates))
	for i := range requests {
		s := &requests[i]
		w.free.Take(s.Consumer, s.Granted)
		w.free.TakeUsed(s, s.Granted)
		if i < len(candidates) {
			pending[i] = &pendingOffer{Slice: s, slice: candidates[i].slice, has: s.Granted, offer: offers[s.Name]}
		}
		if _, limited := rules.Limits[s.Consumer]; limited || len(s.Counted().Excess(offers[s.Name].Granted)) > 0 {
			w.requeueAfter(r.cfg.Interval) // No event reports more pods, or fewer.
		}
	}
	for _, s := range pending {
		w.shrink(ctx, s)
	}
	for _, s := range pending {
		w.grow(ctx, s)
	}

	// 4. Offers that were not written are retried, and slices that may grow soon are requeued.
	for i, s := range pending {
		r.former.observe(candidates[i].user, s.has, now, r.cfg.Interval)
		if s.CoolingDown {
			w.requeueAfter(cooldownOf(s.slice, now, r.cfg.Interval))
		}
		if s.unwritten {
			requested[s.Name] = r.requested[s.Name]
		}
	}
	r.requested = requested

	// 5. The amounts that consumers have and use are reported. No event says that pods have come or gone.
	amounts := &usage{total: total, granted: grantedTo(pending), used: usedBy(use.all)}
	amounts.reclaimed = r.reclaim(&rules, decision.Entitled, amounts, pending, requests[len(candidates):], candidates, use.movable)
	if len(consumers) > 0 {
		w.requeueAfter(r.cfg.Interval)
		if err := r.report(ctx, consumers, amounts); err != nil { // Nothing depends on it.
			ctrl.LoggerFrom(ctx).Error(err, "Cannot report the shares of consumers, trying again")
			w.requeueAfter(afterConflict)
		}
	}
	return ctrl.Result{RequeueAfter: w.after}, errors.Join(w.failures...)
}

// grantsPerConsumer returns the sum of the offers to each consumer.
func grantsPerConsumer(requests []share.Slice, offers map[types.NamespacedName]share.Offer) map[string]resources.Amounts {
	out := map[string]resources.Amounts{}
	for i := range requests {
		consumer := requests[i].Consumer
		out[consumer] = sumOf(out[consumer], offers[requests[i].Name].Granted)
	}
	return out
}

// awaitsProviders reports whether the sum is still unknown: a VirtualNode has no ProviderCluster, or a ProviderCluster
// that is new or was restored from a backup has no status. The broker makes the object and writes its status when it
// reconciles the provider, even if no probe was answered. After statusGrace a missing one counts as zero.
func (r *reconciler) awaitsProviders(ctx context.Context, providers []v1alpha1.ProviderCluster) (bool, error) {
	var virtualNodes offloadingv1beta1.VirtualNodeList
	if err := r.client.List(ctx, &virtualNodes, client.MatchingLabelsSelector{Selector: r.cfg.Providers}); err != nil {
		return false, fmt.Errorf("VirtualNodes: %w", err)
	}
	missing, before := unknown(providers, virtualNodes.Items), r.unknownSince
	awaits := false
	r.unknownSince = make(map[string]time.Time, missing.Len())
	for id := range missing {
		since, was := before[id]
		if !was {
			since = r.now()
		}
		r.unknownSince[id] = since
		awaits = awaits || r.now().Sub(since) < statusGrace
	}
	return awaits, nil
}

// candidate is a slice that the decision includes.
type candidate struct {
	slice *authv1beta1.ResourceSlice
	mode  mode
	user  scheduler.Account
}

// slices reads the slices that the decision includes. foreign has the grants that Liqo, or another controller, made to
// slices of other classes.
func (r *reconciler) slices(ctx context.Context) (candidates []candidate, foreign map[scheduler.Account]resources.Amounts, err error) {
	var tenants authv1beta1.TenantList
	if err := r.client.List(ctx, &tenants); err != nil {
		return nil, nil, fmt.Errorf("tenants of consumers: %w", err)
	}
	foreign = map[scheduler.Account]resources.Amounts{}
	err = inChunks(ctx, r.live, func(list *authv1beta1.ResourceSliceList) {
		for i := range list.Items {
			slice := &list.Items[i]
			if !r.isOurs(slice) {
				if slice.Spec.ConsumerClusterID != nil && placement.IsAccepted(slice, authv1beta1.ResourceSliceConditionTypeResources) {
					foreign[placement.AccountOfSlice(slice)] = resources.RoundDown(slice.Status.Resources)
				}
				continue
			}
			if f := modeOf(slice, tenantOf(tenants.Items, slice)); f != ignored {
				kept := slice.DeepCopy() // A reference would keep the rest of the chunk in memory.
				kept.ManagedFields = nil
				candidates = append(candidates, candidate{kept, f, placement.AccountOfSlice(kept)})
			}
		}
	}, client.MatchingLabels{consts.ReplicationStatusLabel: "true"})
	if err != nil {
		return nil, nil, fmt.Errorf("ResourceSlices: %w", err)
	}
	return candidates, foreign, nil
}

// tenantOf is the tenant of a slice: its consumer's, in its namespace; nil if there is none.
func tenantOf(tenants []authv1beta1.Tenant, slice *authv1beta1.ResourceSlice) *authv1beta1.Tenant {
	for i := range tenants {
		if tenants[i].Namespace == slice.Namespace && string(tenants[i].Spec.ClusterID) == placement.ConsumerOfSlice(slice) {
			return &tenants[i]
		}
	}
	return nil
}

func nameOf(slice *authv1beta1.ResourceSlice) types.NamespacedName {
	return client.ObjectKeyFromObject(slice)
}
