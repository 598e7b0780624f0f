package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	netv1alpha1 "github.com/liqotech/liqo/apis/net/v1alpha1"
	"github.com/liqotech/liqo/pkg/consts"
	liqonetutils "github.com/liqotech/liqo/pkg/liqonet/utils"
)

// ranges are the CIDRs of the remote cluster: the ones that it declares, and the ones with which this cluster reaches
// them. They are the same unless they overlap with others of this cluster.
type ranges struct{ pods, podsHere, external, externalHere netip.Prefix }

// rangesOf reads a TunnelEndpoint.
func rangesOf(spec *netv1alpha1.TunnelEndpointSpec) (ranges, error) {
	var r ranges
	for _, of := range []struct {
		declared, here *netip.Prefix
		cidr, nat      string
	}{
		{&r.pods, &r.podsHere, spec.RemotePodCIDR, spec.RemoteNATPodCIDR},
		{&r.external, &r.externalHere, spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR},
	} {
		var err error
		if *of.declared, err = netip.ParsePrefix(of.cidr); err != nil {
			return ranges{}, err
		}
		*of.here = *of.declared
		if of.nat == "" || of.nat == consts.DefaultCIDRValue {
			continue
		}
		if *of.here, err = netip.ParsePrefix(of.nat); err != nil {
			return ranges{}, err
		}
	}
	return r, nil
}

// own reports whether an address that a pod of the remote cluster shows belongs to that cluster's own pods.
func (r ranges) own(address netip.Addr) bool { return r.pods.Contains(address) }

// reached returns the address with which this cluster reaches an answer of the remote IPAM. Liqo v0.x's server answers
// with the addresses that its client sees. This project's server answers with its own addresses, because it does not
// know how they are remapped.
func (r ranges) reached(answer netip.Addr) (netip.Addr, error) {
	switch {
	case r.externalHere.Contains(answer), r.podsHere.Contains(answer):
		return answer, nil
	case r.external.Contains(answer):
		return rebased(r.externalHere, answer)
	case r.pods.Contains(answer):
		return rebased(r.podsHere, answer)
	}
	return netip.Addr{}, fmt.Errorf("the remote IPAM answers %s, which is outside the ranges of the remote cluster", answer)
}

func rebased(to netip.Prefix, address netip.Addr) (netip.Addr, error) {
	mapped, err := liqonetutils.MapIPToNetwork(to.String(), address.String())
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(mapped)
}

// network watches the TunnelEndpoint of the remote cluster.
type network struct {
	log       logr.Logger
	client    dynamic.Interface
	namespace string
	cluster   string
	// changed is called after every change.
	changed func()

	mu      sync.Mutex
	current *ranges // Nil while there is none; guarded by mu.
}

// ranges returns nil while the remote cluster's network is unknown.
func (n *network) ranges() *ranges {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

// Run watches the TunnelEndpoint until ctx ends, and then returns nil.
func (n *network) Run(ctx context.Context) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(n.client, 0, n.namespace, func(opts *metav1.ListOptions) {
		opts.LabelSelector = consts.ClusterIDLabelName + "=" + n.cluster
	})
	informer := factory.ForResource(netv1alpha1.TunnelEndpointGroupVersionResource).Informer()
	read := func() { n.read(informer.GetStore()) }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { read() }, UpdateFunc: func(_, _ any) { read() }, DeleteFunc: func(any) { read() },
	}); err != nil {
		return fmt.Errorf("watching the TunnelEndpoint: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func (n *network) read(store cache.Store) {
	var found *ranges
	for _, object := range store.List() {
		var tunnel netv1alpha1.TunnelEndpoint
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, &tunnel); err != nil {
			n.log.Error(err, "Cannot read a TunnelEndpoint", "name", object.(*unstructured.Unstructured).GetName())
			continue
		}
		of, err := rangesOf(&tunnel.Spec)
		if err != nil {
			n.log.Info("Ignoring a TunnelEndpoint without valid CIDRs", "tunnelEndpoint", tunnel.Name, "reason", err.Error())
			continue
		}
		found = &of
	}
	n.mu.Lock()
	same := n.current == found || n.current != nil && found != nil && *n.current == *found
	n.current = found
	n.mu.Unlock()
	if !same {
		n.changed()
	}
}
