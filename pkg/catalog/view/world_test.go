package view

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
)

// world is the expected state: the objects, without any index.
type world struct {
	*fed
	clock   *clocktesting.FakeClock
	objects map[string]client.Object
	readers []*reader
}

func keyed(o client.Object) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }

func (w *world) set(o client.Object) {
	w.objects[keyed(o)] = o
	w.sees(o)
	w.remember()
}

func (w *world) removeOne(t *rapid.T) {
	if len(w.objects) == 0 {
		t.Skip("nothing is there")
	}
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(w.objects))).Draw(t, "removed")
	o := w.objects[key]
	delete(w.objects, key)
	if rapid.Bool().Draw(t, "missed") {
		name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		w.handlers[reflect.TypeOf(o)].OnDelete(toolscache.DeletedFinalStateUnknown{Key: name, Obj: o})
	} else {
		w.misses(o)
	}
	w.remember()
}

func each[T client.Object](w *world, do func(T)) {
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		if o, ok := w.objects[key].(T); ok {
			do(o)
		}
	}
}

func (w *world) consumerOf(namespace string) (consumer string) {
	each(w, func(n *corev1.Namespace) {
		if n.Name == namespace && n.Labels[consts.TenantNamespaceLabel] == "" {
			consumer = n.Labels[consts.RemoteClusterID]
		}
	})
	return consumer
}

// truePlacements are the placements that meet a condition, in order.
func (w *world) truePlacements(is func(*api.Placement) bool) []api.Placement {
	list := []api.Placement{}
	each(w, func(pod *corev1.Pod) {
		p := podindex.NewPod(pod, w.consumerOf(pod.Namespace)).Shown
		if pod.Spec.NodeName == node && is(&p) {
			list = append(list, p)
		}
	})
	slices.SortFunc(list, func(x, y api.Placement) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Pod, y.Pod))
	})
	return list
}

func mayBeSeen(s Scope, p *api.Placement) bool {
	switch {
	case s.All:
		return true
	case s.Consumer != "" && s.Namespace != "":
		return p.Consumer == s.Consumer && p.Namespace == s.Namespace
	case s.Consumer != "":
		return p.Consumer == s.Consumer
	default:
		return s.Namespace != "" && p.Namespace == s.Namespace
	}
}

// trueProviders are all providers, in order, as a consumer sees them.
func (w *world) trueProviders(consumer string) []api.Provider {
	list := []api.Provider{}
	each(w, func(pc *v1alpha1.ProviderCluster) {
		var virtualNodes []*offloadingv1beta1.VirtualNode
		each(w, func(vn *offloadingv1beta1.VirtualNode) {
			if string(vn.Spec.ClusterID) == pc.Name {
				virtualNodes = append(virtualNodes, vn)
			}
		})
		p := shownProvider(pc, virtualNodes...)
		if consumer != "" {
			p.Selected = ptr.To(true)
			each(w, func(policy *v1alpha1.PlacementPolicy) {
				switch {
				case policy.Name != "selection-"+consumer:
				case policy.Spec.Selection == nil:
					p.Selected = nil
				default:
					p.Selected = ptr.To(policy.Spec.Selection.Has(pc.Name))
				}
			})
		}
		list = append(list, p)
	})
	return list
}

func newWorld() *world {
	clock := clocktesting.NewFakeClock(noon)
	w := &world{fed: newFed(Config{Clock: clock}), clock: clock, objects: map[string]client.Object{}}
	for _, as := range []struct {
		scope    Scope
		consumer string
	}{
		{Scope{All: true}, ""},
		{Scope{Consumer: "c1"}, "c1"},
		{Scope{Consumer: "c2"}, "c2"},
		{Scope{Namespace: "a"}, ""},
		{Scope{Consumer: "c1", Namespace: "b"}, "c1"},
		{Scope{}, ""},
	} {
		w.readers = append(w.readers, &reader{
			Subscription: w.Subscribe(as.scope, as.consumer), allowed: map[types.NamespacedName]bool{},
		})
	}
	return w
}
