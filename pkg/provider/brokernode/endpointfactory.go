package brokernode

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/discovery"
	discoveryv1informers "k8s.io/client-go/informers/discovery/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	discoveryv1listers "k8s.io/client-go/listers/discovery/v1"
)

// endpointLensFactory is an informer factory whose listers show EndpointSlices and nodes through the lens. The types
// below are the paths from the factory to the listers.
type endpointLensFactory struct {
	informers.SharedInformerFactory
	lens endpointLens
}

func (f endpointLensFactory) Core() core.Interface {
	return nodeLensCore{f.SharedInformerFactory.Core()}
}

func (f endpointLensFactory) Discovery() discovery.Interface {
	return endpointLensDiscovery{Interface: f.SharedInformerFactory.Discovery(), lens: f.lens}
}

type nodeLensCore struct{ core.Interface }

func (c nodeLensCore) V1() corev1informers.Interface { return nodeLensV1{c.Interface.V1()} }

type nodeLensV1 struct{ corev1informers.Interface }

func (v nodeLensV1) Nodes() corev1informers.NodeInformer {
	return nodeLensInformer{v.Interface.Nodes()}
}

type nodeLensInformer struct{ corev1informers.NodeInformer }

func (i nodeLensInformer) Lister() corev1listers.NodeLister { return nodeLens{i.NodeInformer.Lister()} }

type endpointLensDiscovery struct {
	discovery.Interface
	lens endpointLens
}

func (d endpointLensDiscovery) V1() discoveryv1informers.Interface {
	return endpointLensV1{Interface: d.Interface.V1(), lens: d.lens}
}

type endpointLensV1 struct {
	discoveryv1informers.Interface
	lens endpointLens
}

func (v endpointLensV1) EndpointSlices() discoveryv1informers.EndpointSliceInformer {
	return endpointLensInformer{EndpointSliceInformer: v.Interface.EndpointSlices(), lens: v.lens}
}

type endpointLensInformer struct {
	discoveryv1informers.EndpointSliceInformer
	lens endpointLens
}

func (i endpointLensInformer) Lister() discoveryv1listers.EndpointSliceLister {
	return endpointLensLister{EndpointSliceLister: i.EndpointSliceInformer.Lister(), lens: i.lens}
}

type endpointLensLister struct {
	discoveryv1listers.EndpointSliceLister
	lens endpointLens
}

func (l endpointLensLister) EndpointSlices(namespace string) discoveryv1listers.EndpointSliceNamespaceLister {
	return endpointLensNamespace{EndpointSliceNamespaceLister: l.EndpointSliceLister.EndpointSlices(namespace), lens: l.lens}
}

// endpointLensNamespace is what Liqo reads. It takes nothing but names from the EndpointSlices that it lists, so that
// List need not be translated.
type endpointLensNamespace struct {
	discoveryv1listers.EndpointSliceNamespaceLister
	lens endpointLens
}

func (l endpointLensNamespace) Get(name string) (*discoveryv1.EndpointSlice, error) {
	endpointSlice, err := l.EndpointSliceNamespaceLister.Get(name)
	if err != nil {
		return nil, err
	}
	return l.lens.show(endpointSlice), nil
}
