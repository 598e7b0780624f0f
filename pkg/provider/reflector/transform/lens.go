// Package transform has the trimmed caches and the transformed listers that Liqo's reflectors read. A Lens wraps the
// indexer that a lister reads, and changes the objects that the lister shows, not the cache; docs/designs/0001 has the
// reason.
package transform

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/discovery"
	discoveryv1informers "k8s.io/client-go/informers/discovery/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	discoveryv1listers "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// Lens returns an indexer that shows the transformed objects of another indexer.
type Lens func(cache.Indexer) cache.Indexer

// Show returns a Lens that shows each object as the function returns it. The function must not change the object in the
// cache.
func Show[T any](show func(T) T) Lens {
	return func(indexer cache.Indexer) cache.Indexer {
		return shown{Indexer: indexer, show: func(obj any) any { return show(obj.(T)) }}
	}
}

// shown overrides the methods that client-go's listers call.
type shown struct {
	cache.Indexer
	show func(any) any
}

func (s shown) List() []any { return s.all(s.Indexer.List()) }

func (s shown) Index(name string, obj any) ([]any, error) {
	found, err := s.Indexer.Index(name, obj)
	return s.all(found), err
}

func (s shown) GetByKey(key string) (any, bool, error) {
	obj, exists, err := s.Indexer.GetByKey(key)
	if err != nil || !exists {
		return nil, false, err
	}
	return s.show(obj), true, nil
}

func (s shown) all(objects []any) []any {
	out := make([]any, len(objects))
	for i, obj := range objects {
		out[i] = s.show(obj)
	}
	return out
}

// Factory is an informer factory whose listers show transformed objects; a nil Lens changes nothing. It uses the
// informers of the wrapped factory. The types below are the paths from the factory to the listers.
type Factory struct {
	informers.SharedInformerFactory
	Pods, Nodes, EndpointSlices Lens
}

// Core implements informers.SharedInformerFactory.
func (f Factory) Core() core.Interface { return coreGroup{f.SharedInformerFactory.Core(), f} }

// Discovery implements informers.SharedInformerFactory.
func (f Factory) Discovery() discovery.Interface {
	return discoveryGroup{f.SharedInformerFactory.Discovery(), f}
}

type coreGroup struct {
	core.Interface
	factory Factory
}

func (g coreGroup) V1() corev1informers.Interface { return coreV1{g.Interface.V1(), g.factory} }

type coreV1 struct {
	corev1informers.Interface
	factory Factory
}

func (v coreV1) Pods() corev1informers.PodInformer { return Pods(v.Interface.Pods(), v.factory.Pods) }

func (v coreV1) Nodes() corev1informers.NodeInformer {
	return nodes{v.Interface.Nodes(), v.factory.Nodes}
}

type discoveryGroup struct {
	discovery.Interface
	factory Factory
}

func (g discoveryGroup) V1() discoveryv1informers.Interface {
	return discoveryV1{g.Interface.V1(), g.factory}
}

type discoveryV1 struct {
	discoveryv1informers.Interface
	factory Factory
}

func (v discoveryV1) EndpointSlices() discoveryv1informers.EndpointSliceInformer {
	return endpointSlices{v.Interface.EndpointSlices(), v.factory.EndpointSlices}
}

// Pods returns an informer of pods whose lister shows objects through lens, which is applied after those that the
// informer already has.
func Pods(informer corev1informers.PodInformer, lens Lens) corev1informers.PodInformer {
	if behind, is := informer.(pods); is && behind.lens != nil && lens != nil {
		return pods{behind.PodInformer, func(indexer cache.Indexer) cache.Indexer { return lens(behind.lens(indexer)) }}
	}
	return pods{informer, lens}
}

type pods struct {
	corev1informers.PodInformer
	lens Lens
}

func (p pods) Lister() corev1listers.PodLister {
	return corev1listers.NewPodLister(p.lens.on(p.Informer()))
}

type nodes struct {
	corev1informers.NodeInformer
	lens Lens
}

func (n nodes) Lister() corev1listers.NodeLister {
	return corev1listers.NewNodeLister(n.lens.on(n.Informer()))
}

type endpointSlices struct {
	discoveryv1informers.EndpointSliceInformer
	lens Lens
}

func (e endpointSlices) Lister() discoveryv1listers.EndpointSliceLister {
	return discoveryv1listers.NewEndpointSliceLister(e.lens.on(e.Informer()))
}

func (l Lens) on(informer cache.SharedIndexInformer) cache.Indexer {
	if l == nil {
		return informer.GetIndexer()
	}
	return l(informer.GetIndexer())
}
