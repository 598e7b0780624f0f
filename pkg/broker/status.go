package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Reasons of the conditions of a ProviderCluster.
const (
	reasonReady      = "Ready"
	reasonNotReady   = "NotReady"
	reasonNotPeered  = "NotPeered"
	reasonUnknown    = "NotProbedYet"
	reasonAnswers    = "Answers"
	reasonNoAnswer   = "NoAnswer"
	reasonLeaseLive  = "LeaseLive"
	reasonLeaseLost  = "LeaseLost"
	reasonStray      = "ServesAnotherNode"
	reasonConnected  = "ConnectedOrDisabled"
	reasonNoNetwork  = "NotConnected"
	reasonClean      = "NothingLeft"
	reasonNotCleaned = "MovedPodsLeft"
)

// serves says whether a virtual kubelet of a VirtualNode is there for the broker's Node.
func (p *providerBelief) serves(virtualNode string) bool {
	return p.last.kubelets[virtualNode] && !p.strays[virtualNode]
}

// readiness are the conditions of a provider, Ready first.
func readiness(p *providerBelief, network bool) []metav1.Condition {
	reachable := metav1.Condition{Type: v1alpha1.ProviderReachable, Status: metav1.ConditionTrue, Reason: reasonAnswers}
	switch {
	case !p.lost.IsZero():
		reachable.Status, reachable.Reason = metav1.ConditionFalse, reasonNoAnswer
		reachable.Message = p.last.problem
	case !p.looked:
		reachable.Status, reachable.Reason = metav1.ConditionUnknown, reasonUnknown
	}
	kubelet := metav1.Condition{
		Type: v1alpha1.ProviderKubeletReady, Status: metav1.ConditionFalse, Reason: reasonLeaseLost,
		Message: "no virtual kubelet holds a live lease",
	}
	switch {
	case !p.looked:
		kubelet.Status, kubelet.Reason, kubelet.Message = metav1.ConditionUnknown, reasonUnknown, ""
	case slices.ContainsFunc(slices.Collect(maps.Keys(p.last.kubelets)), p.serves):
		kubelet.Status, kubelet.Reason, kubelet.Message = metav1.ConditionTrue, reasonLeaseLive, ""
	case slices.Contains(slices.Collect(maps.Values(p.last.kubelets)), true):
		kubelet.Reason = reasonStray
		kubelet.Message = "its virtual kubelet was not started with --broker-node of this broker: the VirtualNode is older than " +
			"the options that say so, and has to be made anew"
	}
	networked := metav1.Condition{Type: v1alpha1.ProviderNetworkReady, Status: metav1.ConditionTrue, Reason: reasonConnected}
	if !network {
		networked.Status, networked.Reason, networked.Message = metav1.ConditionFalse, reasonNoNetwork,
			"the network to the provider is not established"
	}
	ready := metav1.Condition{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue, Reason: reasonReady}
	for _, c := range []metav1.Condition{reachable, kubelet, networked} {
		if c.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason = metav1.ConditionFalse, reasonNotReady
			ready.Message = strings.TrimSuffix(c.Type+": "+c.Reason+", "+c.Message, ", ")
			break
		}
	}
	clean := metav1.Condition{Type: v1alpha1.ProviderClean, Status: metav1.ConditionTrue, Reason: reasonClean}
	if p.unclean {
		clean.Status, clean.Reason = metav1.ConditionFalse, reasonNotCleaned
		clean.Message = "pods that were moved away may still run there"
	}
	return []metav1.Condition{ready, reachable, kubelet, networked, clean}
}

// kpisEvery is how many status intervals apart a status is written in which nothing but KPIs changed, as they do with
// every probe.
const kpisEvery = 6

func sameButKPIs(a, b *v1alpha1.ProviderClusterStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	x.KPIs, y.KPIs = v1alpha1.KPIs{}, v1alpha1.KPIs{}
	x.Summary.Latency, y.Summary.Latency = "", ""
	x.Summary.Uptime, y.Summary.Uptime = "", ""
	return equality.Semantic.DeepEqual(x, y)
}

func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool { return x.Type == y.Type && x.Status == y.Status })
}

// writeStatus writes the status of a provider, unless it was written lately: what people act on within a second, how
// much is assigned within the status interval, KPIs now and then. It returns when to come back.
func (b *Broker) writeStatus(ctx context.Context, pc *v1alpha1.ProviderCluster,
	virtualNodes []offloadingv1beta1.VirtualNode, network bool,
) (time.Duration, error) {
	now := b.now()
	b.core.mu.Lock()
	p := b.core.providers[pc.Name]
	status := b.statusLocked(pc, p, virtualNodes, network)
	interval := b.cfg.Times.StatusInterval
	switch {
	case !sameConditions(pc.Status.Conditions, status.Conditions):
		interval = min(interval, time.Second)
	case sameButKPIs(&pc.Status, &status):
		interval *= kpisEvery
	}
	wait := interval - now.Sub(p.statusWritten)
	b.metrics.providers.kpis(pc.Name, p)
	b.core.mu.Unlock()
	b.metrics.providers.status(pc, &status)

	if wait > 0 {
		return min(wait, b.cfg.Times.StatusInterval), nil
	}
	updated := pc.DeepCopy()
	updated.Status = status
	if err := b.client.Status().Patch(ctx, updated, client.MergeFrom(pc)); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("status of ProviderCluster %s: %w", pc.Name, err)
	}
	b.core.mu.Lock()
	p.statusWritten = now
	b.core.mu.Unlock()
	return b.cfg.Times.StatusInterval, nil
}

func (b *Broker) statusLocked(pc *v1alpha1.ProviderCluster, p *providerBelief,
	virtualNodes []offloadingv1beta1.VirtualNode, network bool,
) v1alpha1.ProviderClusterStatus {
	status := v1alpha1.ProviderClusterStatus{
		ObservedGeneration: pc.Generation, KPIs: p.tracker.Status(),
		Conditions: slices.Clone(pc.Status.Conditions),
	}
	for _, c := range readiness(p, network) {
		c.ObservedGeneration = pc.Generation
		if c.Type == v1alpha1.ProviderReachable && c.Status == metav1.ConditionFalse {
			// So that another leader counts the outage from its beginning.
			c.LastTransitionTime = metav1.NewTime(p.lost)
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	sum := scheduler.Resources{}
	granted := scheduler.Resources{}
	for i := range virtualNodes {
		vn := &virtualNodes[i]
		assigned, pods := b.core.state.Assigned(vn.Name)
		hard := scheduler.FromResourceList(vn.Spec.ResourceQuota.Hard)
		status.VirtualNodes = append(status.VirtualNodes, v1alpha1.VirtualNodeStatus{
			Name: vn.Name, Ready: p.serves(vn.Name), Pods: int32(pods),
			Resources: resourcesOf(hard, assigned),
		})
		status.Pods += int32(pods)
		sum.Add(assigned)
		granted.Add(hard)
	}
	status.Resources = resourcesOf(granted, sum)
	status.Summary = summarize(&status)
	return status
}

// resourcesOf are the amounts of what was granted, as quantities.
func resourcesOf(granted, assigned scheduler.Resources) v1alpha1.Resources {
	r := v1alpha1.Resources{Granted: corev1.ResourceList{}, Assigned: corev1.ResourceList{}, Free: corev1.ResourceList{}}
	for name, amount := range granted {
		r.Granted[name] = quantity(name, amount)
		r.Assigned[name] = quantity(name, assigned[name])
		r.Free[name] = quantity(name, max(0, amount-assigned[name]))
	}
	return r
}

// quantity is the inverse of the scheduler's amounts: CPU in millicores, memory and storage in bytes.
func quantity(name corev1.ResourceName, amount int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage:
		return *resource.NewQuantity(amount, resource.BinarySI)
	default:
		return *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// summarize words the columns that kubectl cannot compute.
func summarize(status *v1alpha1.ProviderClusterStatus) v1alpha1.Summary {
	r := status.Resources
	s := v1alpha1.Summary{CPU: part(r, corev1.ResourceCPU), Memory: part(r, corev1.ResourceMemory)}
	if share, err := strconv.ParseFloat(status.KPIs.Uptime.LastDay, 64); err == nil {
		s.Uptime = strconv.FormatFloat(100*share, 'f', 1, 64) + "%"
	}
	if took := status.KPIs.LatencyMilliseconds; took != nil {
		s.Latency = (time.Duration(*took) * time.Millisecond).String()
	}
	return s
}

func part(r v1alpha1.Resources, name corev1.ResourceName) string {
	granted, ok := r.Granted[name]
	if !ok {
		return ""
	}
	assigned := r.Assigned[name]
	return assigned.String() + "/" + granted.String()
}

func condition(conditions []metav1.Condition, kind string) *metav1.Condition {
	return meta.FindStatusCondition(conditions, kind)
}

func isFalse(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionFalse(conditions, kind)
}
