package federation

import (
	"k8s.io/apimachinery/pkg/types"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// Revision grows with whatever changes an answer of Providers or Provider: as long as it is the same, so are they.
func (v *View) Revision() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.revision
}

// Providers returns a page of providers, by id. The error is ErrContinue.
func (v *View) Providers(q ProviderQuery) (api.ProviderList, error) {
	after, err := keyOf(listOfProviders, q.Continue)
	if err != nil {
		return api.ProviderList{}, err
	}
	v.mu.RLock()
	items, total, more := v.providers.page(&q, after)
	chosen := v.policies.chosen[q.Consumer]
	v.mu.RUnlock()

	list := api.ProviderList{Items: make([]api.Provider, 0, len(items)), Page: api.Page{Total: total}}
	for _, item := range items {
		list.Items = append(list.Items, item.to(q.Consumer, chosen))
	}
	if more {
		list.Continue = tokenAfter(listOfProviders, items[len(items)-1].shown.ID)
	}
	return list, nil
}

// to shows a provider to a consumer that made a choice; the consumer "" has none.
func (k *known) to(consumer string, chosen *choice) api.Provider {
	out := copyProvider(&k.shown)
	if consumer != "" {
		out.Selected = chosen.has(out.ID)
	}
	return out
}

// Provider returns one provider, as a consumer sees it, if there is a consumer; false if there is no such provider.
func (v *View) Provider(id, consumer string) (api.Provider, bool) {
	v.mu.RLock()
	k, chosen := v.providers.get(id), v.policies.chosen[consumer]
	v.mu.RUnlock()
	if k == nil {
		return api.Provider{}, false
	}
	return k.to(consumer, chosen), true
}

// History returns how a provider did; false if there is no such provider.
func (v *View) History(id string) (api.History, bool) {
	v.mu.RLock()
	k, h := v.providers.get(id), v.providers.histories[id]
	if k == nil {
		v.mu.RUnlock()
		return api.History{}, false
	}
	out := api.History{ID: id, Since: h.since, Samples: h.all()}
	v.mu.RUnlock()
	for i := range out.Samples {
		out.Samples[i].LatencyMilliseconds = copied(out.Samples[i].LatencyMilliseconds)
	}
	uptime := &k.of.Status.KPIs.Uptime
	out.Gaps = gapsOf(uptime.Gaps)
	if uptime.Since != nil {
		since := uptime.Since.UTC()
		out.WatchedSince = &since
	}
	return out, true
}

// Placements returns a page of placements, by namespace and name. The error is ErrContinue.
func (v *View) Placements(q PlacementQuery) (api.PlacementList, error) {
	after, err := podOf(q.Continue)
	if err != nil {
		return api.PlacementList{}, err
	}
	w, any := wantedOf(&q)
	if !any {
		return api.PlacementList{Items: []api.Placement{}}, nil
	}
	v.mu.RLock()
	items, total, more := v.placements.page(&w, after, q.Limit)
	v.mu.RUnlock()

	list := api.PlacementList{Items: make([]api.Placement, 0, len(items)), Page: api.Page{Total: total}}
	for _, item := range items {
		list.Items = append(list.Items, copyPlacement(&item.shown))
	}
	if more {
		list.Continue = tokenAfter(listOfPlacements, items[len(items)-1].name().String())
	}
	return list, nil
}

// Placement returns where a pod is, whoever may see it; false if there is no such pod on the node.
func (v *View) Placement(namespace, pod string) (api.Placement, bool) {
	v.mu.RLock()
	p := v.placements.get(types.NamespacedName{Namespace: namespace, Name: pod})
	v.mu.RUnlock()
	if p == nil {
		return api.Placement{}, false
	}
	return copyPlacement(&p.shown), true
}

// Flows returns how many pods in a scope go where, those that have ended not counted.
func (v *View) Flows(s Scope) api.FlowList {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return api.FlowList{Items: v.placements.flowsIn(s)}
}

// Policies returns a page of policies, by name: all of them, or those that concern the consumer in the scope, with no
// other consumer named. A scope of a namespace alone has none. The error is ErrContinue.
func (v *View) Policies(s Scope, p Page) (api.PolicyList, error) {
	after, err := keyOf(listOfPolicies, p.Continue)
	if err != nil {
		return api.PolicyList{}, err
	}
	v.mu.RLock()
	items, total, more := v.policies.page(s, after, p.Limit)
	v.mu.RUnlock()

	list := api.PolicyList{Items: make([]api.Policy, 0, len(items)), Page: api.Page{Total: total}}
	for _, item := range items {
		list.Items = append(list.Items, copyPolicy(item, s))
	}
	if more {
		list.Continue = tokenAfter(listOfPolicies, items[len(items)-1].Name)
	}
	return list, nil
}

// ForeignClusters returns all of them by name, with kind and apiVersion, without managed fields and what kubectl applied.
func (v *View) ForeignClusters() []liqov1beta1.ForeignCluster {
	v.mu.RLock()
	items := make([]*liqov1beta1.ForeignCluster, 0, v.foreign.Len())
	v.foreign.Ascend(func(fc *liqov1beta1.ForeignCluster) bool {
		items = append(items, fc)
		return true
	})
	v.mu.RUnlock()
	out := make([]liqov1beta1.ForeignCluster, len(items))
	for i, item := range items {
		item.DeepCopyInto(&out[i])
	}
	return out
}

// TenantNamespace is where Liqo gives the identity of a cluster its rights; false if there is none, or more than one.
func (v *View) TenantNamespace(consumer string) (string, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces.tenantOf(consumer)
}

// TenantOf is the cluster whose tenant namespace it is; false if it is none's, or one of several.
func (v *View) TenantOf(namespace string) (consumer string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	cluster := v.namespaces.tenants[namespace]
	if _, alone := v.namespaces.tenantOf(cluster); !alone {
		return "", false
	}
	return cluster, true
}

// HasNamespace says whether there is a namespace, wherever it is from.
func (v *View) HasNamespace(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces.names.Has(name)
}

// ConsumerOfNamespace is the id of the cluster that a namespace came from; "" if it was made here.
func (v *View) ConsumerOfNamespace(namespace string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces.origins[namespace]
}
