package network

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Endpoints maps the endpoints that consumers reflected here to addresses of this cluster's external CIDR, by which the
// providers reach them. Liqo maps only the pods that this cluster offloads; the virtual kubelets of the broker's node
// reflect endpoints that are mapped. It also maps the inner addresses of pods that are shown under an external one.
type Endpoints struct {
	client client.Client
	log    logr.Logger
}

// NewEndpoints returns Endpoints, which do nothing before SetUp. The client's cache holds reflected EndpointSlices
// only.
func NewEndpoints(c client.Client, log logr.Logger) *Endpoints {
	return &Endpoints{client: c, log: log}
}

// SetUp registers the controller with the manager; it runs on the leader.
func (e *Endpoints) SetUp(mgr manager.Manager) error {
	byNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		switch o := o.(type) {
		case *ipamv1alpha1.IP:
			if o.Labels[v1alpha1.EndpointIPLabel] == "" {
				return nil
			}
		case *corev1.Pod:
			if o.Annotations[v1alpha1.InnerIPAnnotation] == "" {
				return nil
			}
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("endpoint").
		Watches(&networkingv1beta1.Configuration{}, handler.EnqueueRequestsFromMapFunc(e.namespacesOfConsumer)).
		Watches(&discoveryv1.EndpointSlice{}, byNamespace).
		Watches(&corev1.Pod{}, byNamespace).
		Watches(&ipamv1alpha1.IP{}, byNamespace).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{}, e.mapEndpoints(ctx, r.Name)
		}))
	if err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	return nil
}

// mapEndpoints creates and deletes IPs of a namespace so that there is one for each address of its reflected
// EndpointSlices and of its pods' annotations. IPs of endpoints stay while the consumer's addresses are not known: an
// IP that is recreated usually gets another external address.
func (e *Endpoints) mapEndpoints(ctx context.Context, namespace string) error {
	var endpointSlices discoveryv1.EndpointSliceList
	if err := e.client.List(ctx, &endpointSlices, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var ips ipamv1alpha1.IPList
	if err := e.client.List(ctx, &ips, client.InNamespace(namespace), client.HasLabels{v1alpha1.EndpointIPLabel}); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := e.client.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	theirs, known, err := e.addressesOfConsumer(ctx, namespace)
	if err != nil {
		return err
	}
	wanted := endpointIPs(namespace, endpointSlices.Items, pods.Items, theirs)
	for i := range ips.Items {
		ip := &ips.Items[i]
		want := wanted[ip.Name]
		delete(wanted, ip.Name)
		switch {
		case ip.DeletionTimestamp != nil || !known && ofEndpoint(ip):
		case want == nil || want.Spec.IP != ip.Spec.IP: // It cannot be changed.
			if err := e.client.Delete(ctx, ip, client.Preconditions{UID: &ip.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("IP %s/%s: %w", namespace, ip.Name, err)
			}
		case !reflect.DeepEqual(ip.OwnerReferences, want.OwnerReferences):
			before := ip.DeepCopy()
			ip.OwnerReferences = want.OwnerReferences
			if err := e.client.Patch(ctx, ip, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("IP %s/%s: %w", namespace, ip.Name, err)
			}
		}
	}
	for _, want := range wanted {
		if err := e.client.Create(ctx, want); err != nil && !kerrors.IsAlreadyExists(err) {
			return fmt.Errorf("IP %s/%s: %w", namespace, want.Name, err)
		}
	}
	return nil
}

// maxEndpointIPs is how many addresses of endpoints are mapped in a namespace: all consumers share the external CIDR.
const maxEndpointIPs = 1000

// addressesOfConsumer returns a function that reports whether an address, as this cluster sees it, is one of the
// consumer that a namespace came from, and whether that is known. Consumers can write any address into EndpointSlices;
// another cluster's must not be mapped.
func (e *Endpoints) addressesOfConsumer(
	ctx context.Context, namespace string,
) (theirs func(address string) bool, known bool, err error) {
	none := func(string) bool { return false }
	var ns corev1.Namespace
	if err := e.client.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return none, true, client.IgnoreNotFound(err)
	}
	consumer := placement.ConsumerOf(&ns)
	if consumer == "" {
		return none, true, nil
	}
	var configurations networkingv1beta1.ConfigurationList
	if err := e.client.List(ctx, &configurations, client.MatchingLabels{consts.RemoteClusterID: consumer}); err != nil {
		return none, false, err
	}
	switch len(configurations.Items) {
	case 0:
		return none, true, nil
	case 1:
		table, err := netconfig.NewTable(&configurations.Items[0])
		return table.Shows, err == nil, nil // The namespace is requeued when the Configuration changes.
	default:
		return none, false, nil
	}
}

// namespacesOfConsumer returns the namespaces of the consumer of a Configuration.
func (e *Endpoints) namespacesOfConsumer(ctx context.Context, configuration client.Object) []reconcile.Request {
	requests, err := placement.NamespacesOf(ctx, e.client, configuration.GetLabels()[consts.RemoteClusterID])
	if err != nil {
		e.log.Error(err, "Cannot list the namespaces of a consumer", "configuration", client.ObjectKeyFromObject(configuration))
	}
	return requests
}

// endpointIPs returns the IPs, by name, that EndpointSlices and pods of a namespace need. All objects with its address
// own an IP, which is deleted with the last of them. Of reflected endpoints, only the consumer's own addresses count.
func endpointIPs(namespace string, endpointSlices []discoveryv1.EndpointSlice, pods []corev1.Pod,
	theirs func(address string) bool,
) map[string]*ipamv1alpha1.IP {
	out := map[string]*ipamv1alpha1.IP{}
	add := func(address string, owner metav1.OwnerReference) {
		ip := endpointIP(namespace, address)
		if ip == nil {
			return
		}
		if known := out[ip.Name]; known != nil {
			ip = known
		}
		out[ip.Name] = ip
		if !slices.Contains(ip.OwnerReferences, owner) {
			ip.OwnerReferences = append(ip.OwnerReferences, owner)
		}
	}
	slices.SortFunc(endpointSlices, func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	for i := range endpointSlices {
		from := &endpointSlices[i]
		if !forge.IsEndpointSliceManagedByReflection(from) || from.DeletionTimestamp != nil {
			continue
		}
		owner := metav1.OwnerReference{
			APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice", Name: from.Name, UID: from.UID,
		}
		for j := range from.Endpoints {
			for _, address := range from.Endpoints[j].Addresses {
				if theirs(address) && len(out) < maxEndpointIPs {
					add(address, owner)
				}
			}
		}
	}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp == nil && !placement.Terminal(pod) { // The address of one that has ended may be another pod's.
			add(pod.Annotations[v1alpha1.InnerIPAnnotation],
				metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
		}
	}
	for _, ip := range out {
		slices.SortFunc(ip.OwnerReferences, func(a, b metav1.OwnerReference) int { return cmp.Compare(a.UID, b.UID) })
	}
	return out
}

// ofEndpoint reports whether an IP belongs to an endpoint in an EndpointSlice.
func ofEndpoint(ip *ipamv1alpha1.IP) bool {
	return slices.ContainsFunc(ip.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "EndpointSlice" })
}

// endpointIP returns nil for a text that is not an address, such as a host name.
func endpointIP(namespace, address string) *ipamv1alpha1.IP {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil
	}
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      v1alpha1.EndpointIPName(addr),
			Labels:    map[string]string{v1alpha1.EndpointIPLabel: "true"},
		},
		Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(address)},
	}
}

// ModuleInstalled reports whether Liqo's networking module is installed, which maps the addresses of pods by IP
// objects.
func ModuleInstalled(mapper meta.RESTMapper) (bool, error) {
	version := ipamv1alpha1.SchemeGroupVersion
	_, err := mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: "IP"}, version.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
