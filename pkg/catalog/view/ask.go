package view

import (
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// Providers returns a page of providers, by id. The error is ErrContinue.
func (v *View) Providers(q ProviderQuery) (api.ProviderList, error) {
	after, err := keyOf(listOfProviders, q.Continue)
	if err != nil {
		return api.ProviderList{}, err
	}
	v.mu.RLock()
	items, total, more := v.providers.page(&q, after)
	selection := v.policies.selections[q.Consumer]
	v.mu.RUnlock()

	list := api.ProviderList{Items: make([]api.Provider, 0, len(items)), Page: api.Page{Total: total}}
	for _, item := range items {
		list.Items = append(list.Items, item.shownTo(q.Consumer, selection))
	}
	if more {
		list.Continue = tokenAfter(listOfProviders, items[len(items)-1].shown.ID)
	}
	return list, nil
}

// shownTo shows a provider to a consumer with a selection; the consumer "" has none.
func (p *provider) shownTo(consumer string, selection *selected) api.Provider {
	out := p.shown
	if consumer != "" {
		out.Selected = selection.has(out.ID)
	}
	return out
}

// Provider returns one provider as a consumer sees it, if consumer is not ""; false if there is no such provider.
func (v *View) Provider(id, consumer string) (api.Provider, bool) {
	v.mu.RLock()
	p, selection := v.providers.get(id), v.policies.selections[consumer]
	v.mu.RUnlock()
	if p == nil {
		return api.Provider{}, false
	}
	return p.shownTo(consumer, selection), true
}

// History returns the samples of a provider; false if there is no such provider.
func (v *View) History(id string) (api.History, bool) {
	v.mu.RLock()
	p, h := v.providers.get(id), v.providers.histories[id]
	if p == nil {
		v.mu.RUnlock()
		return api.History{}, false
	}
	out := api.History{ID: id, Since: h.since, Samples: h.all()}
	v.mu.RUnlock()
	out.Gaps = api.GapsOf(p.uptime.Gaps)
	if p.uptime.Since != nil {
		since := p.uptime.Since.UTC()
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
	filter, some := q.filter()
	if !some {
		return api.PlacementList{Items: []api.Placement{}}, nil
	}
	v.mu.RLock()
	items, total, more := v.pods.Page(&filter, after, q.Limit)
	v.mu.RUnlock()

	list := api.PlacementList{Items: make([]api.Placement, 0, len(items)), Page: api.Page{Total: total}}
	for _, item := range items {
		list.Items = append(list.Items, item.Shown)
	}
	if more {
		list.Continue = tokenAfter(listOfPlacements, items[len(items)-1].Name().String())
	}
	return list, nil
}

// Flows returns the numbers of pods in a scope, by consumer and provider. Pods that have ended do not count.
func (v *View) Flows(s Scope) api.FlowList {
	v.mu.RLock()
	defer v.mu.RUnlock()
	switch {
	case s.All:
		return api.FlowList{Items: v.pods.Flows()}
	case s.Namespace != "" && (s.Consumer == "" || s.Consumer == v.namespaces.origins[s.Namespace]):
		return api.FlowList{Items: v.pods.NamespaceFlows(s.Namespace)}
	case s.Namespace == "" && s.Consumer != "":
		return api.FlowList{Items: v.pods.ConsumerFlows(s.Consumer)}
	}
	return api.FlowList{Items: []api.Flow{}}
}

// Policies returns a page of policies, by name: all of them, or the policies for the consumer in the scope, without the
// names of other consumers. A scope of a namespace alone has none. The error is ErrContinue.
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
		shown := *item
		if !s.All && len(shown.Consumers) > 0 {
			shown.Consumers = []string{s.Consumer}
		}
		list.Items = append(list.Items, shown)
	}
	if more {
		list.Continue = tokenAfter(listOfPolicies, items[len(items)-1].Name)
	}
	return list, nil
}

// ForeignClusters returns all of them by name, with kind and apiVersion, without managed fields and kubectl's
// last-applied configuration.
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

// TenantNamespace returns the namespace where Liqo binds the identity of a cluster to its role; false if there is none,
// or more than one.
func (v *View) TenantNamespace(consumer string) (string, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces.tenantOf(consumer)
}

// TenantOf returns the cluster of a tenant namespace; false if the namespace is not one, or if the cluster has several.
func (v *View) TenantOf(namespace string) (consumer string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	cluster := v.namespaces.tenants[namespace]
	if _, only := v.namespaces.tenantOf(cluster); !only {
		return "", false
	}
	return cluster, true
}

// HasNamespace reports whether there is a namespace.
func (v *View) HasNamespace(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces.names.Has(name)
}

// ConsumerOfNamespace returns the id of the cluster that a namespace came from; "" if it was made here.
func (v *View) ConsumerOfNamespace(namespace string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces.origins[namespace]
}
