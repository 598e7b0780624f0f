package view

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
)

func (v *View) setPod(pod *corev1.Pod) {
	if pod.Spec.NodeName != v.cfg.Node {
		v.removePod(client.ObjectKeyFromObject(pod))
		return
	}
	v.state.SetPod(pod) // Without the lock: it may wait for a decision.
	v.mu.Lock()
	defer v.mu.Unlock()
	v.storePod(podindex.NewPod(pod, v.namespaces.origins[pod.Namespace]))
}

// storePod stores a pod, and publishes it if its shown data changed. The caller holds mu.
func (v *View) storePod(fresh *podindex.Pod) {
	before := v.pods.Set(fresh)
	if before == nil || !reflect.DeepEqual(before.Shown, fresh.Shown) {
		v.publishPlacement(before, fresh)
	}
}

func (v *View) removePod(name types.NamespacedName) {
	v.state.RemovePod(name)
	v.mu.Lock()
	defer v.mu.Unlock()
	if before := v.pods.Remove(name); before != nil {
		v.publishPlacement(before, nil)
	}
}

func (v *View) setNamespace(namespace *corev1.Namespace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.updateProviders(v.state.SetNamespace(namespace))
	v.namespaces.set(namespace)
	v.updateConsumer(namespace.Name)
}

func (v *View) removeNamespace(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.updateProviders(v.state.RemoveNamespace(name))
	v.namespaces.remove(name.Name)
	v.updateConsumer(name.Name)
}

// updateConsumer sets the consumer of the pods in a namespace. The caller holds mu.
func (v *View) updateConsumer(namespace string) {
	consumer := v.namespaces.origins[namespace]
	for _, p := range v.pods.Namespace(namespace) {
		if p.Shown.Consumer != consumer {
			v.storePod(p.WithConsumer(consumer))
		}
	}
}

func (v *View) setProvider(pc *v1alpha1.ProviderCluster) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.SetProvider(pc)
	v.updateProviders([]string{pc.Name})
}

func (v *View) removeProvider(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.RemoveProvider(name)
	if v.providers.remove(name.Name) {
		v.publishProvider(name.Name)
	}
}

func (v *View) setVirtualNode(vn *offloadingv1beta1.VirtualNode) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.updateProviders(v.state.SetVirtualNode(vn))
}

func (v *View) removeVirtualNode(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.updateProviders(v.state.RemoveVirtualNode(name))
}

// updateProviders updates the shown data of providers. The caller holds mu.
func (v *View) updateProviders(ids []string) {
	for _, id := range ids {
		pc, translated := v.state.Provider(id)
		if pc == nil {
			continue
		}
		fresh := newProvider(pc, &translated)
		before := v.providers.set(fresh, v.cfg.Clock.Now().UTC())
		if before == nil || !reflect.DeepEqual(before.shown, fresh.shown) {
			v.publishProvider(id)
		}
	}
}

func (v *View) setPolicy(policy *v1alpha1.PlacementPolicy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.updateSelection(v.policies.set(policy))
}

func (v *View) removePolicy(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.updateSelection(v.policies.remove(name.Name))
}

// updateSelection publishes the changes of a consumer's selection to it. The caller holds mu.
func (v *View) updateSelection(consumer string, before *selected) {
	if consumer == "" {
		return
	}
	after := v.policies.selections[consumer]
	var changed []string
	v.providers.byID.Ascend(func(p *provider) bool {
		if !reflect.DeepEqual(before.has(p.shown.ID), after.has(p.shown.ID)) {
			changed = append(changed, p.shown.ID)
		}
		return true
	})
	v.publishSelection(consumer, changed)
}

func (v *View) setForeign(fc *liqov1beta1.ForeignCluster) {
	shown := fc.DeepCopy()
	shown.SetGroupVersionKind(liqov1beta1.GroupVersion.WithKind(liqov1beta1.ForeignClusterKind))
	trimMeta(shown)
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
