package explain

import (
	"maps"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// shownProvider is a provider as its status shows it, with its own VirtualNodes and NamespaceMaps.
func shownProvider(pc *v1alpha1.ProviderCluster, virtualNodes []*offloadingv1beta1.VirtualNode,
	namespaceMaps []*offloadingv1beta1.NamespaceMap,
) scheduler.Provider {
	ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady)
	p := scheduler.Provider{
		ID: pc.Name, Labels: map[string]string{}, Attributes: pc.Spec.Attributes,
		Enabled: pc.Spec.Enabled == nil || *pc.Spec.Enabled, Cordoned: pc.Spec.Cordoned, Draining: pc.Spec.Drain,
		Ready:      meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ProviderReady),
		Recovering: meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ProviderClean),
		Namespaces: sets.New[string](), KPIs: shownKPIs(&pc.Status.KPIs),
	}
	if ready != nil {
		p.NotReady = ready.Message
	}
	for _, virtualNode := range virtualNodes {
		maps.Copy(p.Labels, virtualNode.Spec.Labels)
	}
	for _, m := range namespaceMaps {
		for local, remote := range m.Status.CurrentMapping {
			if remote.Phase == offloadingv1beta1.MappingAccepted {
				p.Namespaces.Insert(local)
			}
		}
	}
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		p.Slices = append(p.Slices, scheduler.Slice{
			VirtualNode: vn.Name, Granted: scheduler.FromResourceList(vn.Resources.Granted), Ready: vn.Ready,
		})
	}
	return p
}

func shownKPIs(k *v1alpha1.KPIs) scheduler.KPIs {
	share := func(text string) *float64 {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			return &value
		}
		return nil
	}
	shown := scheduler.KPIs{
		Uptime1h: share(k.Uptime.LastHour), Uptime24h: share(k.Uptime.LastDay),
		Uptime7d: share(k.Uptime.LastWeek), Uptime30d: share(k.Uptime.LastMonth),
	}
	if k.LatencyMilliseconds != nil {
		latency := time.Duration(*k.LatencyMilliseconds) * time.Millisecond
		shown.Latency = &latency
	}
	if k.PodStart != nil {
		p50, p90 := time.Duration(k.PodStart.P50Milliseconds)*time.Millisecond, time.Duration(k.PodStart.P90Milliseconds)*time.Millisecond
		shown.PodStartP50, shown.PodStartP90 = &p50, &p90
	}
	if k.Started+k.Failed > 0 {
		rate := float64(k.Failed) / float64(k.Started+k.Failed)
		shown.FailureRate = &rate
	}
	return shown
}
