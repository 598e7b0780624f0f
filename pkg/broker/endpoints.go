package broker

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
)

// endpointController gives the endpoints that consumers have sent here an address of this cluster's external range, by
// which the providers reach them. Liqo does so for the pods that this cluster offloads only; the virtual kubelets of the
// broker's node send on what is mapped. And it gives one to the inner addresses of pods, where those are to be shown under
// it.
func (b *Broker) endpointController(mgr manager.Manager) error {
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
		Watches(&networkingv1beta1.Configuration{}, handler.EnqueueRequestsFromMapFunc(b.namespacesOfConsumer)).
		Watches(&discoveryv1.EndpointSlice{}, byNamespace).
		Watches(&corev1.Pod{}, byNamespace).
		Watches(&ipamv1alpha1.IP{}, byNamespace).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{}, b.mapEndpoints(ctx, r.Name)
		}))
	if err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	return nil
}

// mapEndpoints makes the IPs of a namespace be those of the addresses that its reflected EndpointSlices, and its pods by
// their annotation, have. The cache holds no other EndpointSlices.
func (b *Broker) mapEndpoints(ctx context.Context, namespace string) error {
	var endpointSlices discoveryv1.EndpointSliceList
	if err := b.client.List(ctx, &endpointSlices, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var ips ipamv1alpha1.IPList
	if err := b.client.List(ctx, &ips, client.InNamespace(namespace), client.HasLabels{v1alpha1.EndpointIPLabel}); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	theirs, err := b.addressesOfConsumer(ctx, namespace)
	if err != nil {
		return err
	}
	wanted := endpointIPs(namespace, endpointSlices.Items, pods.Items, theirs)
	for i := range ips.Items {
		ip := &ips.Items[i]
		want := wanted[ip.Name]
		delete(wanted, ip.Name)
		switch {
		case ip.DeletionTimestamp != nil:
		case want == nil || want.Spec.IP != ip.Spec.IP: // It cannot be changed.
			if err := b.client.Delete(ctx, ip, client.Preconditions{UID: &ip.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("IP %s/%s: %w", namespace, ip.Name, err)
			}
		case !reflect.DeepEqual(ip.OwnerReferences, want.OwnerReferences):
			before := ip.DeepCopy()
			ip.OwnerReferences = want.OwnerReferences
			if err := b.client.Patch(ctx, ip, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("IP %s/%s: %w", namespace, ip.Name, err)
			}
		}
	}
	for _, want := range wanted {
		if err := b.client.Create(ctx, want); err != nil && !kerrors.IsAlreadyExists(err) {
			return fmt.Errorf("IP %s/%s: %w", namespace, want.Name, err)
		}
	}
	return nil
}

// maxEndpointIPs is how many addresses of endpoints are mapped in a namespace: the external range is everybody's.
const maxEndpointIPs = 1000

// addressesOfConsumer says which addresses are those of the consumer that a namespace came from, as this cluster sees
// them. Consumers write into EndpointSlices what they like: any other address would be opened to them, whosever it is.
func (b *Broker) addressesOfConsumer(ctx context.Context, namespace string) (func(address string) bool, error) {
	nobodys := func(string) bool { return false }
	var ns corev1.Namespace
	if err := b.client.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return nobodys, client.IgnoreNotFound(err)
	}
	consumer := ns.Labels[consts.RemoteClusterID]
	if consumer == "" || ns.Annotations[consts.RemoteNamespaceManagedByAnnotationKey] == "" {
		return nobodys, nil
	}
	var configurations networkingv1beta1.ConfigurationList
	if err := b.client.List(ctx, &configurations, client.MatchingLabels{consts.RemoteClusterID: consumer}); err != nil {
		return nobodys, err
	}
	if len(configurations.Items) != 1 {
		return nobodys, nil
	}
	table, err := netconfig.NewTable(&configurations.Items[0])
	if err != nil {
		return nobodys, nil //nolint:nilerr // It is looked at again when the Configuration is remapped.
	}
	return table.Shows, nil
}

// namespacesOfConsumer are those that a Configuration is decisive for.
func (b *Broker) namespacesOfConsumer(ctx context.Context, configuration client.Object) []reconcile.Request {
	var list corev1.NamespaceList
	if err := b.client.List(ctx, &list, client.MatchingLabels{consts.RemoteClusterID: configuration.GetLabels()[consts.RemoteClusterID]}); err != nil {
		b.log.Error(err, "Cannot list the namespaces of a consumer", "configuration", client.ObjectKeyFromObject(configuration))
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
	}
	return requests
}

// endpointIPs returns the IPs, by name, that EndpointSlices and pods of a namespace need. Each is owned by all of those
// that have its address: it goes with the last one. Of what consumers have sent, only their own addresses count.
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
		if pod.DeletionTimestamp == nil {
			add(pod.Annotations[v1alpha1.InnerIPAnnotation],
				metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
		}
	}
	for _, ip := range out {
		slices.SortFunc(ip.OwnerReferences, func(a, b metav1.OwnerReference) int { return cmp.Compare(a.UID, b.UID) })
	}
	return out
}

// endpointIP returns nil for what is no address, such as a host name.
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
