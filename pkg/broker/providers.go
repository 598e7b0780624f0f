package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// staleAfter is how many probes may be missing before the time counts as unobserved.
const staleAfter = 6

// reconcileProvider brings one provider cluster up to date: its object, what the scheduler knows of it, its status.
func (b *Broker) reconcileProvider(ctx context.Context, id string) (ctrl.Result, error) {
	// 1. The slices that it granted.
	virtualNodes, err := b.virtualNodesOf(ctx, id)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(virtualNodes) == 0 {
		return ctrl.Result{}, b.removeProvider(ctx, id)
	}

	// 2. Its object, made if need be.
	pc, err := b.providerCluster(ctx, id)
	if err != nil {
		return ctrl.Result{}, err
	}

	// 3. The connections, and the probes.
	now := b.now()
	b.adopt(pc, virtualNodes)
	targets := target{id: id, virtualNodes: map[string]string{}}
	for i := range virtualNodes {
		vn := &virtualNodes[i]
		targets.virtualNodes[vn.Name] = vn.Namespace
		if err := b.connections.refresh(ctx, vn, now); err != nil {
			// Its probe will fail, and say why.
			b.log.Error(err, "Cannot connect to a provider", "provider", id)
		}
	}
	b.prober.watch(targets) //nolint:contextcheck // The probes outlive this reconciliation.

	// 4. What the rest of the API says of it.
	network, err := b.networkReady(ctx, id)
	if err != nil {
		return ctrl.Result{}, err
	}
	offloaded, mapped, err := b.namespacesOf(ctx, id)
	if err != nil {
		return ctrl.Result{}, err
	}
	shared, err := b.sharedNames(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}

	// 5. What the scheduler is to know.
	b.believe(ctx, pc, virtualNodes, knownElsewhere{offloaded: offloaded, mapped: mapped, shared: shared, network: network})

	// 6. After an outage: does it still run what it must not?
	result, err := b.checkClean(ctx, id)
	if err != nil {
		return result, err
	}

	// 7. What people see.
	after, err := b.writeStatus(ctx, pc, virtualNodes, network)
	return ctrl.Result{RequeueAfter: earliest(result.RequeueAfter, after)}, err
}

// earliest is the shorter of two waits, of which 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// virtualNodesOf lists the VirtualNodes of a cluster that are to be used, by name.
func (b *Broker) virtualNodesOf(ctx context.Context, id string) ([]offloadingv1beta1.VirtualNode, error) {
	var list offloadingv1beta1.VirtualNodeList
	if err := b.client.List(ctx, &list, client.MatchingLabelsSelector{Selector: b.cfg.ProviderSelector}); err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(list.Items, func(vn offloadingv1beta1.VirtualNode) bool {
		return string(vn.Spec.ClusterID) != id
	})
	slices.SortFunc(mine, func(a, b offloadingv1beta1.VirtualNode) int { return strings.Compare(a.Name, b.Name) })
	return mine, nil
}

// providerCluster reads the object of a provider, and makes it if there is none.
func (b *Broker) providerCluster(ctx context.Context, id string) (*v1alpha1.ProviderCluster, error) {
	pc := &v1alpha1.ProviderCluster{}
	err := b.client.Get(ctx, client.ObjectKey{Name: id}, pc)
	if !kerrors.IsNotFound(err) {
		return pc, err
	}
	pc = &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	if err := b.client.Create(ctx, pc); err != nil && !kerrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("ProviderCluster %s: %w", id, err)
	}
	return pc, nil
}

// removeProvider forgets a cluster that grants nothing any more. What people decided about it is kept for its return.
func (b *Broker) removeProvider(ctx context.Context, id string) error {
	b.prober.forget(id)
	b.core.mu.Lock()
	_, known := b.core.providers[id]
	delete(b.core.providers, id)
	b.core.rehouseLocked(id, nil, b.connections.forget)
	b.core.state.RemoveProvider(id)
	b.core.mu.Unlock()
	if known {
		b.metrics.forgetProvider(id)
		b.changed(ctx, "")
	}
	var pc v1alpha1.ProviderCluster
	if err := b.client.Get(ctx, client.ObjectKey{Name: id}, &pc); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !decided(&pc.Spec) {
		return client.IgnoreNotFound(b.client.Delete(ctx, &pc))
	}
	if isFalse(pc.Status.Conditions, v1alpha1.ProviderReady) && condition(pc.Status.Conditions, v1alpha1.ProviderReady).Reason == reasonNotPeered {
		return nil
	}
	updated := pc.DeepCopy()
	updated.Status.VirtualNodes, updated.Status.Resources, updated.Status.Pods, updated.Status.Summary = nil, v1alpha1.Resources{}, 0, v1alpha1.Summary{}
	conditionChanged(&updated.Status.Conditions, v1alpha1.ProviderReady, metav1.ConditionFalse, reasonNotPeered,
		"there is no VirtualNode of this cluster", pc.Generation)
	return client.IgnoreNotFound(b.client.Status().Patch(ctx, updated, client.MergeFrom(&pc)))
}

// decided says whether people have decided anything about a provider.
func decided(spec *v1alpha1.ProviderClusterSpec) bool {
	return (spec.Enabled != nil && !*spec.Enabled) || spec.Cordoned || spec.Drain || len(spec.Attributes) > 0
}

// rehouseLocked notes which VirtualNodes a provider has now; those that it has no more are remembered as former.
func (c *core) rehouseLocked(id string, virtualNodes []offloadingv1beta1.VirtualNode, gone func(virtualNode string)) {
	now := sets.New[string]()
	for i := range virtualNodes {
		now.Insert(virtualNodes[i].Name)
	}
	for virtualNode, provider := range c.homeOf {
		if provider == id && !now.Has(virtualNode) {
			delete(c.homeOf, virtualNode)
			c.formerHome[virtualNode] = id
			gone(virtualNode)
		}
	}
	for virtualNode := range now {
		c.homeOf[virtualNode] = id
		delete(c.formerHome, virtualNode)
	}
}

// adopt starts to believe in a provider where its status left off.
func (b *Broker) adopt(pc *v1alpha1.ProviderCluster, virtualNodes []offloadingv1beta1.VirtualNode) {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	p, known := b.core.providers[pc.Name]
	if !known {
		p = &providerBelief{
			tracker: kpi.NewTracker(pc.Status.KPIs, staleAfter*b.cfg.Times.ProbeInterval),
			unclean: isFalse(pc.Status.Conditions, v1alpha1.ProviderClean),
		}
		// An outage goes on over a restart: it is as old as the condition that tells of it.
		if reachable := condition(pc.Status.Conditions, v1alpha1.ProviderReachable); reachable != nil &&
			reachable.Status == metav1.ConditionFalse && reachable.Reason == reasonNoAnswer {
			p.lost, p.firstMiss, p.misses = reachable.LastTransitionTime.Time, reachable.LastTransitionTime.Time, missesUntilLost
			p.unclean = true // The last leader may not have come to write that it moved pods away.
		}
		b.core.providers[pc.Name] = p
		b.metrics.meet(pc.Name)
	}
	p.enabled = pc.Spec.Enabled == nil || *pc.Spec.Enabled
	p.draining = pc.Spec.Drain
	p.closing, p.strays = map[string]bool{}, map[string]bool{}
	for i := range virtualNodes {
		vn := &virtualNodes[i]
		p.closing[vn.Name] = vn.DeletionTimestamp != nil
		p.strays[vn.Name] = !serves(vn, b.cfg.NodeName)
	}
	b.core.rehouseLocked(pc.Name, virtualNodes, b.connections.forget)
}

// serves says whether the virtual kubelet of a VirtualNode is started for a Node, if its template tells: that is fixed when
// the VirtualNode is made (Liqo's pkg/webhooks/virtualnode). Liqo's own holds the same lease, and serves a Node of its own.
func serves(vn *offloadingv1beta1.VirtualNode, node string) bool {
	if vn.Spec.Template == nil {
		return true
	}
	return slices.ContainsFunc(vn.Spec.Template.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, "--broker-node="+node)
	})
}

// sharedNames are the names that VirtualNodes in several namespaces bear. The label of a pod says a name only, so that
// pods there would run at each of them.
func (b *Broker) sharedNames(ctx context.Context) (sets.Set[string], error) {
	var list offloadingv1beta1.VirtualNodeList
	if err := b.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	seen, shared := sets.New[string](), sets.New[string]()
	for i := range list.Items {
		if name := list.Items[i].Name; seen.Has(name) {
			shared.Insert(name)
		} else {
			seen.Insert(name)
		}
	}
	return shared, nil
}

// knownElsewhere is what other objects of the API say of a provider.
type knownElsewhere struct {
	// offloaded are the local namespaces that pods may use there, mapped all that exist there.
	offloaded, mapped map[string]string
	// shared are names of VirtualNodes that cannot be used.
	shared  sets.Set[string]
	network bool
}

// believe tells the scheduler of a provider, and wakes the pods that this may concern.
func (b *Broker) believe(ctx context.Context, pc *v1alpha1.ProviderCluster, virtualNodes []offloadingv1beta1.VirtualNode,
	known knownElsewhere,
) {
	c := b.core
	c.mu.Lock()
	p := c.providers[pc.Name]
	p.remoteNamespaces = known.mapped
	conditions := readiness(p, known.network)
	fresh := scheduler.Provider{
		ID: pc.Name, Labels: map[string]string{}, Attributes: pc.Spec.Attributes,
		Enabled: p.enabled, Cordoned: pc.Spec.Cordoned, Draining: p.draining, Recovering: p.unclean,
		Ready: conditions[0].Status == metav1.ConditionTrue, NotReady: conditions[0].Message,
		Namespaces: sets.KeySet(known.offloaded), KPIs: schedulerKPIs(p.tracker),
	}
	for i := range virtualNodes {
		vn := &virtualNodes[i]
		for key, value := range vn.Spec.Labels {
			fresh.Labels[key] = value
		}
		if known.shared.Has(vn.Name) {
			b.log.Info("Two VirtualNodes have one name; none of them is used. Make them anew with names of their own",
				"virtualNode", vn.Name, "provider", pc.Name)
		}
		fresh.Slices = append(fresh.Slices, scheduler.Slice{
			VirtualNode: vn.Name, Granted: scheduler.FromResourceList(vn.Spec.ResourceQuota.Hard),
			Ready: p.serves(vn.Name) && !known.shared.Has(vn.Name), Cordoned: p.closing[vn.Name],
		})
	}
	c.state.SetProvider(fresh)
	// KPIs move with every probe; nobody waits for them.
	standing := fresh
	standing.KPIs, standing.NotReady = scheduler.KPIs{}, ""
	outlook := fmt.Sprintf("looked %v, lost %v, draining %v", p.looked, !p.lost.IsZero(), p.draining)
	changed := outlook != p.outlook || !equality.Semantic.DeepEqual(p.standing, standing)
	p.standing, p.outlook = standing, outlook
	c.mu.Unlock()
	if changed {
		b.changed(ctx, pc.Name)
	}
}

// changed wakes what a change of one provider may concern: the pods there, those that wait for room, and the Node.
func (b *Broker) changed(ctx context.Context, id string) {
	b.wakePodsOf(ctx, id)
	b.wakeWaiting()
	b.node.refresh()
}

// namespacesOf are the local namespaces offloaded to a cluster, with their names there, and all that are mapped there,
// those that are coming or going included. Only the NamespaceMaps in its own tenant namespace count: the names in them
// decide whose pods the broker asks about, and connects callers with.
func (b *Broker) namespacesOf(ctx context.Context, id string) (offloaded, mapped map[string]string, err error) {
	var maps offloadingv1beta1.NamespaceMapList
	if err := b.client.List(ctx, &maps, client.MatchingLabels{consts.RemoteClusterID: id}); err != nil {
		return nil, nil, err
	}
	offloaded, mapped = map[string]string{}, map[string]string{}
	for i := range maps.Items {
		var tenant corev1.Namespace
		if err := b.client.Get(ctx, client.ObjectKey{Name: maps.Items[i].Namespace}, &tenant); client.IgnoreNotFound(err) != nil {
			return nil, nil, err
		}
		if placement.TenantOf(&tenant) != id {
			continue
		}
		for local, remote := range maps.Items[i].Status.CurrentMapping {
			mapped[local] = remote.RemoteNamespace
			if remote.Phase == offloadingv1beta1.MappingAccepted {
				offloaded[local] = remote.RemoteNamespace
			}
		}
	}
	return offloaded, mapped, nil
}

// networkReady says whether the network to a cluster is up, or none of Liqo's business. Unknown is not up.
func (b *Broker) networkReady(ctx context.Context, id string) (bool, error) {
	var list liqov1beta1.ForeignClusterList
	if err := b.client.List(ctx, &list); err != nil {
		return false, err
	}
	for i := range list.Items {
		if string(list.Items[i].Spec.ClusterID) == id {
			return fcutils.IsNetworkingEstablishedOrDisabled(&list.Items[i]), nil
		}
	}
	return false, nil
}

// checkClean looks whether a provider that came back still runs pods that were moved away.
func (b *Broker) checkClean(ctx context.Context, id string) (ctrl.Result, error) {
	b.core.mu.Lock()
	p := b.core.providers[id]
	dirty := p.unclean && p.lost.IsZero() && p.last.up
	namespaces := p.remoteNamespaces
	b.core.mu.Unlock()
	if !dirty {
		return ctrl.Result{}, nil
	}
	for _, virtualNode := range b.virtualNodeNames(id) {
		c := b.connections.get(virtualNode)
		if c == nil {
			return ctrl.Result{RequeueAfter: b.cfg.Times.ProbeInterval}, nil
		}
		for local, remote := range namespaces {
			running, err := b.running(ctx, c, remote)
			if err != nil {
				b.log.Info("Cannot see what a provider runs", "provider", id, "because", err.Error())
				return ctrl.Result{RequeueAfter: b.cfg.Times.ProbeInterval}, nil
			}
			for _, name := range running {
				if !b.isAssignedTo(ctx, types.NamespacedName{Namespace: local, Name: name}, virtualNode) {
					return ctrl.Result{RequeueAfter: time.Second}, nil
				}
			}
		}
	}
	b.log.Info("A provider that was unreachable has cleaned up", "provider", id)
	b.core.mu.Lock()
	p.unclean = false
	b.core.mu.Unlock()
	return ctrl.Result{RequeueAfter: time.Millisecond}, nil
}

// running lists what a VirtualNode forwarded to a remote namespace.
func (b *Broker) running(ctx context.Context, c *connection, namespace string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Times.RequestTimeout)
	defer cancel()
	return c.running(ctx, namespace)
}

func (b *Broker) virtualNodeNames(id string) []string {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	var names []string
	for virtualNode, provider := range b.core.homeOf {
		if provider == id {
			names = append(names, virtualNode)
		}
	}
	return names
}

func (b *Broker) isAssignedTo(ctx context.Context, name types.NamespacedName, virtualNode string) bool {
	var pod corev1.Pod
	return b.client.Get(ctx, name, &pod) == nil && pod.Labels[v1alpha1.VirtualNodeLabel] == virtualNode
}

// schedulerKPIs is what the tracker knows, in the scheduler's form.
func schedulerKPIs(t *kpi.Tracker) scheduler.KPIs {
	var k scheduler.KPIs
	for window, into := range map[time.Duration]**float64{
		time.Hour: &k.Uptime1h, 24 * time.Hour: &k.Uptime24h, 7 * 24 * time.Hour: &k.Uptime7d, 30 * 24 * time.Hour: &k.Uptime30d,
	} {
		if share, known := t.Uptime().Share(window); known {
			*into = &share
		}
	}
	if latency, known := t.Latency(); known {
		k.Latency = &latency
	}
	if p50, p90, known := t.PodStart(); known {
		k.PodStartP50, k.PodStartP90 = &p50, &p90
	}
	if rate, known := t.FailureRate(); known {
		k.FailureRate = &rate
	}
	return k
}
