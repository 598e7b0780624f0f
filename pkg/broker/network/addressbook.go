package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// podAddressIndex is the index of pods by their address, written as netip does.
const podAddressIndex = "status.podIP"

// addressBook answers the remote IPAM from Liqo's objects in the cache. It implements ipam.Directory.
// The cache holds the pods of the broker's node only, with podAddressIndex.
type addressBook struct{ cache client.Reader }

// indexPodAddress is the function of podAddressIndex. A terminal pod is not in it: its address may be another pod's by
// now.
func indexPodAddress(o client.Object) []string {
	pod, ok := o.(*corev1.Pod)
	if !ok || placement.Terminal(pod) {
		return nil
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return nil
	}
	return []string{address.Unmap().String()}
}

// External implements ipam.Directory: it returns the address of Liqo's IP object of the pod, which has the pod's name
// (pkg/liqo-controller-manager/ipmapping.CreateOrUpdateIP).
func (a addressBook) External(ctx context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	var pods corev1.PodList
	if err := a.cache.List(ctx, &pods, client.MatchingFields{podAddressIndex: address.String()}); err != nil {
		return netip.Addr{}, fmt.Errorf("pods with address %s: %w", address, err)
	}
	// The same answer every time, should there be several.
	slices.SortFunc(pods.Items, func(x, y corev1.Pod) int {
		return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	outcome := ipam.ErrUnknown
	for i := range pods.Items {
		forwarded, err := a.forwardedFor(ctx, consumer, &pods.Items[i])
		if err != nil {
			return netip.Addr{}, err
		}
		if !forwarded {
			continue
		}
		external, err := a.external(ctx, &pods.Items[i], address)
		if err != nil || external.IsValid() {
			return external, err
		}
		outcome = ipam.ErrNotYet
	}
	return netip.Addr{}, outcome
}

// forwardedFor reports whether a consumer forwarded a pod here: it is a ShadowPod's (Liqo's ShadowPod controller
// labels it), in a namespace that Liqo has made for that consumer
// (pkg/liqo-controller-manager/offloading/namespacemap-controller, createNamespace).
func (a addressBook) forwardedFor(ctx context.Context, consumer string, pod *corev1.Pod) (bool, error) {
	if pod.Labels[consts.ManagedByLabelKey] != consts.ManagedByShadowPodValue {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := a.cache.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return consumer != "" && placement.ConsumerOf(&namespace) == consumer, nil
}

// external returns the address that Liqo mapped the pod's address to; the zero Addr while it has not, or if it mapped
// an older one.
func (a addressBook) external(ctx context.Context, pod *corev1.Pod, address netip.Addr) (netip.Addr, error) {
	var ip ipamv1alpha1.IP
	err := a.cache.Get(ctx, client.ObjectKeyFromObject(pod), &ip)
	if kerrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return netip.Addr{}, nil
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("IP %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	mapped, err := netip.ParseAddr(string(ip.Spec.IP))
	if err != nil || mapped.Unmap() != address || ip.DeletionTimestamp != nil || ip.Status.IP == "" {
		return netip.Addr{}, nil
	}
	external, err := netip.ParseAddr(string(ip.Status.IP))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("IP %s/%s: status.ip: %w", pod.Namespace, pod.Name, err)
	}
	return external, nil
}

// Home implements ipam.Directory, by the Configuration of the consumer.
func (a addressBook) Home(ctx context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	var configurations networkingv1beta1.ConfigurationList
	err := a.cache.List(ctx, &configurations, client.MatchingLabels{consts.RemoteClusterID: consumer})
	if meta.IsNoMatchError(err) || err == nil && len(configurations.Items) != 1 {
		return netip.Addr{}, ipam.ErrNotYet
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("network configuration of %s: %w", consumer, err)
	}
	table, err := netconfig.NewTable(&configurations.Items[0])
	if err != nil {
		return netip.Addr{}, fmt.Errorf("network configuration of %s: %w: %w", consumer, ipam.ErrNotYet, err)
	}
	if !table.Covers(address.String()) {
		return netip.Addr{}, ipam.ErrUnknown
	}
	seen, err := table.Translate(address.String())
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(seen)
}

// Peered implements ipam.Directory, by the Configurations.
func (a addressBook) Peered(ctx context.Context, consumer string) (bool, error) {
	var configurations networkingv1beta1.ConfigurationList
	err := a.cache.List(ctx, &configurations, client.MatchingLabels{consts.RemoteClusterID: consumer})
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("network configuration of %s: %w", consumer, err)
	}
	return len(configurations.Items) > 0, nil
}

// PodCIDRs implements ipam.Directory, by Liqo's Network objects, as pkg/utils/ipam.GetPodCIDRs reads them.
func (a addressBook) PodCIDRs(ctx context.Context) ([]netip.Prefix, error) {
	var networks ipamv1alpha1.NetworkList
	err := a.cache.List(ctx, &networks, client.MatchingLabels{consts.NetworkTypeLabelKey: string(consts.NetworkTypePodCIDR)})
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("pod CIDRs: %w", err)
	}
	var cidrs []netip.Prefix
	for i := range networks.Items {
		if networks.Items[i].Status.CIDR == "" {
			return nil, ipam.ErrNotYet
		}
		cidr, err := netip.ParsePrefix(networks.Items[i].Status.CIDR.String())
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", networks.Items[i].Name, err)
		}
		cidrs = append(cidrs, cidr)
	}
	if len(cidrs) == 0 {
		return nil, ipam.ErrNotYet
	}
	return cidrs, nil
}
