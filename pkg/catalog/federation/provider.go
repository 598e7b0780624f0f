package federation

import (
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// attributeRegion is the attribute that says where a provider is.
const attributeRegion = "region"

// known is a provider. It is never changed.
type known struct {
	shown api.Provider
	// of is what it was made from; it belongs to the informer.
	of *v1alpha1.ProviderCluster
	// text is what is searched.
	text string
}

// knownOf is a provider that advertises labels of its own.
func knownOf(pc *v1alpha1.ProviderCluster, advertised map[string]string) *known {
	k := &known{of: pc, shown: api.Provider{
		ID: pc.Name, Created: pc.CreationTimestamp.UTC(),
		Enabled:  pc.Spec.Enabled == nil || *pc.Spec.Enabled,
		Cordoned: pc.Spec.Cordoned, Draining: pc.Spec.Drain,
		Ready: meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ProviderReady),
		// What it advertises does not count as its price.
		Price:      number(pc.Spec.Attributes[scheduler.AttributePrice]),
		Attributes: map[string]string{},
		Resources:  resourcesOf(&pc.Status.Resources),
		Pods:       pc.Status.Pods,
		KPIs:       kpisOf(&pc.Status.KPIs),
		Conditions: conditionsOf(pc.Status.Conditions),
	}}
	shown := &k.shown
	maps.Copy(shown.Attributes, advertised)
	maps.Copy(shown.Attributes, pc.Spec.Attributes)
	shown.Region = shown.Attributes[attributeRegion]
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		shown.VirtualNodes = append(shown.VirtualNodes, api.VirtualNode{
			Name: vn.Name, Ready: vn.Ready, Pods: vn.Pods, Resources: resourcesOf(&vn.Resources),
		})
	}
	var text strings.Builder
	text.WriteString(strings.ToLower(shown.ID))
	for _, value := range shown.Attributes {
		text.WriteString("\n" + strings.ToLower(value))
	}
	k.text = text.String()
	return k
}

func (q *ProviderQuery) matches(k *known, text string) bool {
	s := &k.shown
	return (q.Ready == nil || *q.Ready == s.Ready) && (q.Enabled == nil || *q.Enabled == s.Enabled) &&
		(q.Region == "" || q.Region == s.Region) && (text == "" || strings.Contains(k.text, text))
}

func resourcesOf(r *v1alpha1.Resources) api.Resources {
	return api.Resources{Granted: r.Granted.DeepCopy(), Assigned: r.Assigned.DeepCopy(), Free: r.Free.DeepCopy()}
}

func kpisOf(k *v1alpha1.KPIs) api.KPIs {
	shown := api.KPIs{
		Uptime1h: number(k.Uptime.LastHour), Uptime24h: number(k.Uptime.LastDay),
		Uptime7d: number(k.Uptime.LastWeek), Uptime30d: number(k.Uptime.LastMonth),
		LatencyMilliseconds: copied(k.LatencyMilliseconds), MovedAway: k.MovedAway,
	}
	if k.PodStart != nil {
		shown.PodStartP50Millis, shown.PodStartP90Millis = copied(&k.PodStart.P50Milliseconds), copied(&k.PodStart.P90Milliseconds)
	}
	if k.Started+k.Failed > 0 {
		rate := float64(k.Failed) / float64(k.Started+k.Failed)
		shown.FailureRate = &rate
	}
	return shown
}

// number is nil for what is not a decimal number, not negative.
func number(text string) *float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.") != "" {
		return nil
	}
	return &value
}

func conditionsOf(conditions []metav1.Condition) []api.Condition {
	var shown []api.Condition
	for i := range conditions {
		c := &conditions[i]
		shown = append(shown, api.Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.UTC(),
		})
	}
	return shown
}

// sampleOf is a provider at a moment.
func sampleOf(p *api.Provider, at time.Time) api.Sample {
	cpus := func(of corev1.ResourceList) float64 { return of.Cpu().AsApproximateFloat64() }
	return api.Sample{
		At: at, Ready: p.Ready, LatencyMilliseconds: p.KPIs.LatencyMilliseconds, Pods: p.Pods,
		CPUAssigned: cpus(p.Resources.Assigned), CPUGranted: cpus(p.Resources.Granted),
	}
}

// gapsOf are the gaps that the broker has seen in a provider's uptime.
func gapsOf(gaps []v1alpha1.Gap) []api.Gap {
	shown := []api.Gap{}
	for _, g := range gaps {
		shown = append(shown, api.Gap{From: g.From.UTC(), To: g.To.UTC(), Kind: string(g.Kind)})
	}
	return shown
}
