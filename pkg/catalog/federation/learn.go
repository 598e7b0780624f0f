package federation

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func (v *View) setPod(pod *corev1.Pod) {
	if pod.Spec.NodeName != v.cfg.Node {
		v.removePod(client.ObjectKeyFromObject(pod))
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.place(placedOf(pod, v.namespaces.origins[pod.Namespace]))
}

// place needs the lock.
func (v *View) place(fresh *placed) {
	before := v.placements.set(fresh)
	if before == nil || !reflect.DeepEqual(before.shown, fresh.shown) {
		v.publishPlacement(before, fresh)
	}
}

func (v *View) removePod(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if before := v.placements.remove(name); before != nil {
		v.publishPlacement(before, nil)
	}
}

func (v *View) setNamespace(namespace *corev1.Namespace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.namespaces.set(namespace)
	v.follow(namespace.Name)
}

func (v *View) removeNamespace(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.namespaces.remove(name.Name)
	v.follow(name.Name)
}

// follow gives the pods of a namespace to whoever it belongs to now; it needs the lock.
func (v *View) follow(namespace string) {
	consumer := v.namespaces.origins[namespace]
	index := v.placements.byNamespace[namespace]
	if index == nil {
		return
	}
	var others []*placed
	index.Ascend(func(p *placed) bool {
		if p.shown.Consumer != consumer {
			others = append(others, p)
		}
		return true
	})
	for _, p := range others {
		v.place(p.from(consumer))
	}
}

func (v *View) setProvider(pc *v1alpha1.ProviderCluster) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.provide(pc)
}

// provide shows a provider with what it advertises now; it needs the lock.
func (v *View) provide(pc *v1alpha1.ProviderCluster) {
	fresh := knownOf(pc, v.providers.labelsOf(pc.Name))
	before := v.providers.set(fresh, v.cfg.Clock.Now().UTC())
	if before == nil || !reflect.DeepEqual(before.shown, fresh.shown) {
		v.publishProvider(pc.Name)
	}
}

func (v *View) removeProvider(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.providers.remove(name.Name) {
		v.publishProvider(name.Name)
	}
}

func (v *View) setVirtualNode(vn *offloadingv1beta1.VirtualNode) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.advertise(v.providers.advertised.Set(client.ObjectKeyFromObject(vn), string(vn.Spec.ClusterID), vn.Spec.Labels))
}

func (v *View) removeVirtualNode(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.advertise(v.providers.advertised.Remove(name))
}

// advertise shows providers with what they advertise now; it needs the lock.
func (v *View) advertise(providers []string) {
	for _, id := range providers {
		if k := v.providers.get(id); k != nil {
			v.provide(k.of)
		}
	}
}

func (v *View) setPolicy(policy *v1alpha1.PlacementPolicy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.choose(v.policies.set(policy))
}

func (v *View) removePolicy(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.choose(v.policies.remove(name.Name))
}

// choose tells a consumer what has changed in its selection; it needs the lock.
func (v *View) choose(consumer string, before *choice) {
	if consumer == "" {
		return
	}
	after := v.policies.chosen[consumer]
	var changed []string
	v.providers.byID.Ascend(func(k *known) bool {
		if !reflect.DeepEqual(before.has(k.shown.ID), after.has(k.shown.ID)) {
			changed = append(changed, k.shown.ID)
		}
		return true
	})
	v.publishChoice(consumer, changed)
}

func (v *View) setForeign(fc *liqov1beta1.ForeignCluster) {
	shown := fc.DeepCopy()
	shown.SetGroupVersionKind(liqov1beta1.GroupVersion.WithKind(liqov1beta1.ForeignClusterKind))
	if _, err := trim(shown); err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.foreign.ReplaceOrInsert(shown)
}

func (v *View) removeForeign(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := &liqov1beta1.ForeignCluster{}
	gone.Name = name.Name
	v.foreign.Delete(gone)
}
