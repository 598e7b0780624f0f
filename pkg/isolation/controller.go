package isolation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/apis/networking/v1beta1/firewall"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	ipamutils "github.com/liqotech/liqo/pkg/utils/ipam"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/remap"
)

// ManagedBy has the label of the FirewallConfigurations of this package. The package does not change one without it.
func ManagedBy() labels.Set { return labels.Set{"app.kubernetes.io/managed-by": "liqo-broker"} }

// A gateway reads all rules again for every new rule. So after a write, the objects of a peer are written again only
// after writePause, plus writePauseEach for each address in the written objects.
const (
	writePause     = 100 * time.Millisecond
	writePauseEach = time.Millisecond
)

// Config configures the Controller.
type Config struct {
	Log logr.Logger
	// Client reads the cache, which holds only FirewallConfigurations that are ManagedBy the broker.
	Client client.Client
	// Enabled isolates peers; if it is false, isolated peers are released.
	Enabled bool
	// NodeName is the broker's Node.
	NodeName string
	Clock    clock.PassiveClock
	Metrics  *Metrics
}

// Controller writes FirewallConfigurations for the gateway of each peer, that is for each tenant namespace, except for
// providers: the pods of all consumers call through the gateway of a provider. It does not wait until a peer is a
// consumer, because its network may be connected earlier.
type Controller struct {
	cfg Config
	// local reads the pods of consumers on nodes other than the broker's.
	local client.Reader
	// gateways has the state by tenant namespace. There is only one worker, so it needs no lock.
	gateways map[string]*gatewayState
}

// gatewayState is the controller's state of a gateway.
type gatewayState struct {
	// notBefore is the earliest time at which its objects may be written again.
	notBefore time.Time
	// cut is the number of addresses of the peer that exceed the limit.
	cut int
	// shown is the peer whose metric is exposed; "" if none is.
	shown string
}

// New returns a Controller, which does nothing before SetUp.
func New(cfg Config) *Controller {
	return &Controller{cfg: cfg, gateways: map[string]*gatewayState{}}
}

// SetUp registers the controller with the manager; it runs on the leader.
func (c *Controller) SetUp(mgr manager.Manager) error {
	local, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Label: labels.Set{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue}.AsSelector(),
			Field: fields.OneTermNotEqualSelector("spec.nodeName", c.cfg.NodeName),
		}},
	})
	if err != nil {
		return fmt.Errorf("isolation of consumers: %w", err)
	}
	if err := mgr.Add(local); err != nil {
		return fmt.Errorf("isolation of consumers: %w", err)
	}
	c.local = local
	everyPeer := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return c.peers(ctx, "")
	})
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return c.peersOfNamespace(ctx, o.GetNamespace())
	})
	err = ctrl.NewControllerManagedBy(mgr).Named("isolation").
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return c.peersOf(ctx, o)
		})).
		Watches(&networkingv1beta1.FirewallConfiguration{}, ofNamespace).
		Watches(&ipamv1alpha1.IP{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			ip, _ := o.(*ipamv1alpha1.IP)
			return c.peersOfIP(ctx, ip)
		})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(c.peersOfPod), builder.WithPredicates(addressChanged())).
		Watches(&ipamv1alpha1.Network{}, everyPeer).
		Watches(&networkingv1beta1.Configuration{}, everyPeer).
		Watches(&offloadingv1beta1.VirtualNode{}, ofNamespace).
		WatchesRawSource(source.Kind[client.Object](local, &corev1.Pod{}, ofNamespace)).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("isolation of consumers: %w", err)
	}
	return nil
}

// peers returns requests for the tenant namespaces of a peer; for all tenant namespaces with "".
func (c *Controller) peers(ctx context.Context, cluster string) (requests []reconcile.Request) {
	var list corev1.NamespaceList
	tenants := client.MatchingLabels{consts.TenantNamespaceLabel: "true"}
	if err := c.cfg.Client.List(ctx, &list, tenants, client.UnsafeDisableDeepCopy); err != nil {
		c.cfg.Log.Error(err, "Cannot list the tenant namespaces", "cluster", cluster)
	}
	for i := range list.Items {
		if peer := placement.TenantOf(&list.Items[i]); peer != "" && (cluster == "" || peer == cluster) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// peersOf returns requests for the tenant namespaces of the peer that a namespace belongs to: it is the peer's tenant
// namespace, or the peer has offloaded it.
func (c *Controller) peersOf(ctx context.Context, namespace client.Object) []reconcile.Request {
	if placement.TenantOf(namespace) != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: namespace.GetName()}}}
	}
	if consumer := placement.ConsumerOf(namespace); consumer != "" {
		return c.peers(ctx, consumer)
	}
	return nil
}

func (c *Controller) peersOfNamespace(ctx context.Context, name string) []reconcile.Request {
	var namespace corev1.Namespace
	if err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		if !kerrors.IsNotFound(err) { // The deletion of the namespace is a separate event.
			c.cfg.Log.Error(err, "Cannot read the namespace", "namespace", name)
		}
		return nil
	}
	return c.peersOf(ctx, &namespace)
}

// peersOfIP returns requests for the tenant namespaces of all peers that may connect to the address of an IP.
func (c *Controller) peersOfIP(ctx context.Context, ip *ipamv1alpha1.IP) []reconcile.Request {
	if forEveryConsumer(ip) {
		return c.peers(ctx, "")
	}
	return c.peersOfNamespace(ctx, ip.Namespace)
}

// peersOfPod returns the requests for the IP of a pod of the broker's node. If there is no IP yet, its creation is a
// separate event.
func (c *Controller) peersOfPod(ctx context.Context, pod client.Object) []reconcile.Request {
	var ip ipamv1alpha1.IP
	if err := c.cfg.Client.Get(ctx, client.ObjectKeyFromObject(pod), &ip, client.UnsafeDisableDeepCopy); err != nil {
		if !kerrors.IsNotFound(err) {
			c.cfg.Log.Error(err, "Cannot read the IP of a pod", "pod", client.ObjectKeyFromObject(pod))
		}
		return nil
	}
	return c.peersOfIP(ctx, &ip)
}

// addressChanged selects the changes after which a pod has another address, or may have lost its address.
func addressChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		return !ok || !ok2 || before.Status.PodIP != after.Status.PodIP || placement.Terminal(before) != placement.Terminal(after)
	}}
}

// Reconcile implements reconcile.Reconciler, for a tenant namespace.
func (c *Controller) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var tenant corev1.Namespace
	err := c.cfg.Client.Get(ctx, r.NamespacedName, &tenant)
	peer := placement.TenantOf(&tenant)
	if err != nil || peer == "" || tenant.DeletionTimestamp != nil {
		c.forget(r.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	of := c.gateways[r.Name]
	if of == nil {
		of = &gatewayState{}
		c.gateways[r.Name] = of
	}
	if wait := of.notBefore.Sub(c.cfg.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	tables, err := c.tablesOf(ctx, of, &tenant, peer)
	if errors.Is(err, errNoNetwork) {
		c.cfg.Log.Info("Not isolating the peer yet", "peer", peer, "reason", err.Error())
		return ctrl.Result{}, nil // A Network requeues all.
	} else if err != nil {
		return ctrl.Result{}, err
	}
	pause, failed, exists := time.Duration(0), 0, false
	var failures []error
	for _, table := range tables { // All of them: the denying table does not wait for the allowing ones.
		object, written, err := c.write(ctx, tenant.Name, peer, table)
		if err != nil {
			failures = append(failures, fmt.Errorf("FirewallConfiguration %s/%s: %w", tenant.Name, *table.Name, err))
		} else if written && len(table.Chains) > 0 {
			pause = max(pause, writePause) + time.Duration(len(table.Chains[0].Rules.NatRules))*writePauseEach
		}
		if err != nil || notApplied(object) {
			failed++
		}
		exists = exists || err != nil || object.ResourceVersion != ""
	}
	of.notBefore = c.cfg.Clock.Now().Add(pause)
	if exists || of.shown != "" { // Else it is a provider or exempted, and was never isolated.
		of.shown = peer
		c.cfg.Metrics.failed.WithLabelValues(peer).Set(float64(failed))
	}
	return ctrl.Result{}, errors.Join(failures...)
}

// forget drops the state of a tenant namespace that was deleted.
func (c *Controller) forget(namespace string) {
	if of := c.gateways[namespace]; of != nil && of.shown != "" {
		c.cfg.Metrics.failed.DeleteLabelValues(of.shown)
	}
	delete(c.gateways, namespace)
}

// tablesOf returns the tables of the gateway of a peer. Each table is an object of its name. The denying table is the
// last one, so that an upgrade interrupts no allowed traffic.
func (c *Controller) tablesOf(
	ctx context.Context, of *gatewayState, tenant *corev1.Namespace, peer string,
) (tables []firewall.Table, err error) {
	var divided [shares][]target
	deny := openTable(tableName)
	if isolated, err := c.isolated(ctx, tenant, peer); err != nil {
		return nil, err
	} else if isolated {
		var everyones []target
		if divided, everyones, err = c.divided(ctx, of, peer); err != nil {
			return nil, err
		}
		ranges, err := c.ranges(ctx, everyones)
		if err != nil {
			return nil, err
		}
		deny = denyTable(ranges)
	}
	for n, targets := range divided {
		tables = append(tables, ownTable(nameOfShare(n), targets))
	}
	return append(tables, deny), nil
}

// divided returns the addresses that a peer may connect to, by the object that has them, and the addresses among them
// that all consumers may connect to.
func (c *Controller) divided(
	ctx context.Context, of *gatewayState, peer string,
) (divided [shares][]target, everyones []target, err error) {
	own, everyones, err := c.targetsOf(ctx, peer)
	if err != nil {
		return divided, nil, err
	}
	divided, cut := divide(slices.Concat(own, everyones))
	if cut != of.cut {
		of.cut = cut
		if cut > 0 {
			c.cfg.Log.Info("Too many addresses, the consumer cannot reach those over the limit", "consumer", peer, "unreachable", cut)
		}
	}
	return divided, everyones, nil
}

// isolated reports whether a peer is isolated: it is no provider (a provider has a VirtualNode in its tenant
// namespace), and no administrator exempts it.
func (c *Controller) isolated(ctx context.Context, tenant *corev1.Namespace, peer string) (bool, error) {
	if !c.cfg.Enabled || tenant.Labels[v1alpha1.IsolateLabel] == "false" {
		return false, nil
	}
	var nodes offloadingv1beta1.VirtualNodeList
	if err := c.cfg.Client.List(ctx, &nodes, client.InNamespace(tenant.Name), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(nodes.Items, func(n offloadingv1beta1.VirtualNode) bool { return string(n.Spec.ClusterID) == peer }), nil
}

// write creates or updates the object of a table in a tenant namespace, unless it is up to date. It returns the object,
// and whether it was written.
func (c *Controller) write(
	ctx context.Context, namespace, peer string, table firewall.Table,
) (object *networkingv1beta1.FirewallConfiguration, written bool, err error) {
	object = &networkingv1beta1.FirewallConfiguration{}
	object.Namespace, object.Name = namespace, *table.Name
	err = c.cfg.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		return object, false, err
	}
	missing := err != nil
	if missing && len(table.Chains) == 0 {
		return object, false, nil
	}
	before := object.DeepCopy()
	object.Labels = labels.Merge(object.Labels, labels.Merge(ManagedBy(), gatewayOf(peer)))
	object.Spec = networkingv1beta1.FirewallConfigurationSpec{Table: table}
	if missing {
		err := c.cfg.Client.Create(ctx, object)
		if kerrors.IsAlreadyExists(err) { // Or the cache does not have it yet.
			err = fmt.Errorf("it exists without the label %s, delete it: %w", ManagedBy(), err)
		}
		return object, true, err
	}
	if equality.Semantic.DeepEqual(before, object) {
		return object, false, nil
	}
	return object, true, c.cfg.Client.Update(ctx, object)
}

// errNoNetwork means that the cluster does not have Liqo's networking module.
var errNoNetwork = errors.New("no ready Network of Liqo for the pod CIDR or the external CIDR")

// ranges returns the destinations that packets of a consumer may have: the pod CIDRs and the external CIDR of this
// cluster, from Liqo's Network objects; its peers' CIDRs as this cluster sees them, from their Configurations; and the
// addresses outside these CIDRs that all consumers may connect to.
func (c *Controller) ranges(ctx context.Context, everyones []target) (ranges []netip.Prefix, err error) {
	var networks ipamv1alpha1.NetworkList
	if err := c.cfg.Client.List(ctx, &networks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	add := func(prefix netip.Prefix) {
		if prefix.Addr().Is4() && !slices.Contains(ranges, prefix.Masked()) {
			ranges = append(ranges, prefix.Masked())
		}
	}
	var pod, external bool
	for i := range networks.Items {
		network := &networks.Items[i]
		if !ipamutils.IsPodCIDR(network) && !ipamutils.IsExternalCIDR(network) {
			continue
		}
		prefix, err := netip.ParsePrefix(network.Status.CIDR.String())
		if err != nil {
			return nil, errNoNetwork
		}
		pod, external = pod || ipamutils.IsPodCIDR(network), external || ipamutils.IsExternalCIDR(network)
		add(prefix)
	}
	if !pod || !external {
		return nil, errNoNetwork
	}
	var configurations networkingv1beta1.ConfigurationList
	if err := c.cfg.Client.List(ctx, &configurations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range configurations.Items {
		if remote := configurations.Items[i].Status.Remote; remote != nil {
			for _, cidr := range slices.Concat(remote.CIDR.Pod, remote.CIDR.External) {
				if prefix, err := netip.ParsePrefix(cidr.String()); err == nil {
					add(prefix)
				}
			}
		}
	}
	for _, t := range everyones {
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(t.leadsTo) }) {
			add(netip.PrefixFrom(t.leadsTo, t.leadsTo.BitLen()))
		}
	}
	slices.SortFunc(ranges, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	return ranges, nil
}

// forEveryConsumer reports whether all consumers may connect to the address of an IP: the IP belongs to the proxy of
// the API server, which a peering with liqoctl peer --in-band uses, or an administrator has labelled it. Consumers
// cannot write IPs or their labels.
func forEveryConsumer(ip *ipamv1alpha1.IP) bool {
	return ipamutils.IsAPIServerProxyIP(ip) || ip.Labels[v1alpha1.ForConsumersLabel] == "true"
}

// targetsOf returns the addresses that a consumer may connect to: own are the mapped addresses in its namespaces, and
// its pods on nodes of this cluster; everyones are the addresses that all consumers may connect to.
func (c *Controller) targetsOf(ctx context.Context, consumer string) (own, everyones []target, err error) {
	var namespaces corev1.NamespaceList
	ofConsumer := client.MatchingLabels{consts.RemoteClusterID: consumer}
	if err := c.cfg.Client.List(ctx, &namespaces, ofConsumer, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	theirs := map[string]bool{}
	for i := range namespaces.Items {
		if placement.ConsumerOf(&namespaces.Items[i]) == consumer {
			theirs[namespaces.Items[i].Name] = true
		}
	}
	add := func(targets *[]target, address, leadsTo string) {
		from, err := netip.ParseAddr(address)
		to, err2 := netip.ParseAddr(leadsTo)
		if err == nil && err2 == nil && from.Is4() && to.Is4() { // Liqo's gateways support IPv4 only.
			*targets = append(*targets, target{address: from, leadsTo: to})
		}
	}
	var ips ipamv1alpha1.IPList
	if err := c.cfg.Client.List(ctx, &ips, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	for i := range ips.Items {
		ip, of := &ips.Items[i], &own
		if forEveryConsumer(ip) {
			of = &everyones
		} else if !theirs[ip.Namespace] {
			continue
		}
		if left, err := c.left(ctx, ip); err != nil {
			return nil, nil, err
		} else if !left && ip.DeletionTimestamp == nil {
			add(of, ip.Status.IP.String(), ip.Spec.IP.String())
		}
	}
	var pods corev1.PodList
	if err := c.local.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if theirs[pod.Namespace] && !pod.Spec.HostNetwork && !placement.Terminal(pod) {
			add(&own, pod.Status.PodIP, pod.Status.PodIP)
		}
	}
	return own, everyones, nil
}

// left reports whether an IP belongs to a pod that no longer has its address. Liqo keeps the IP for as long as the pod
// object exists; at the provider the address may already be another pod's.
func (c *Controller) left(ctx context.Context, ip *ipamv1alpha1.IP) (bool, error) {
	if !remap.OfPod(ip) {
		return false, nil
	}
	for _, pods := range []client.Reader{c.cfg.Client, c.local} {
		var pod corev1.Pod
		err := pods.Get(ctx, client.ObjectKeyFromObject(ip), &pod, client.UnsafeDisableDeepCopy)
		if err == nil {
			return placement.Terminal(&pod) || pod.Status.PodIP != ip.Spec.IP.String(), nil
		}
		if !kerrors.IsNotFound(err) {
			return false, err
		}
	}
	// The pod was deleted, and its IP will be; or the pod is no consumer's, on another virtual node.
	return !forEveryConsumer(ip), nil
}
