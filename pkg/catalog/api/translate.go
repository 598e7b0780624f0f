package api

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// ProviderOf shows a provider as the scheduler sees it, with the fields that only its object has.
func ProviderOf(now time.Time, pc *v1alpha1.ProviderCluster, p *scheduler.Provider) Provider {
	out := Provider{
		ID: pc.Name, Created: pc.CreationTimestamp.UTC(),
		Region: pc.Spec.Region(), Enabled: p.Enabled, Cordoned: p.Cordoned, Draining: p.Draining, Ready: p.Ready,
		Attributes: map[string]string{},
		Resources:  *pc.Status.Resources.DeepCopy(), Pods: pc.Status.Pods,
		KPIs:       kpisOf(p.KPIs, pc.Status.KPIs.MovedAway),
		Conditions: conditionsOf(pc.Status.Conditions),
	}
	if list := p.Prices.At(now); list != nil {
		if perCPU, priced := list.PerHour[corev1.ResourceCPU]; priced {
			out.Price, out.Currency = &perCPU, list.Currency
		}
	}
	for i := range p.Prices {
		out.Prices = append(out.Prices, pricesOf(&p.Prices[i]))
	}
	maps.Copy(out.Attributes, p.Labels)
	maps.Copy(out.Attributes, p.Attributes)
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		out.VirtualNodes = append(out.VirtualNodes, VirtualNode{
			Name: vn.Name, Ready: vn.Ready, Reason: vn.Reason, Pods: vn.Pods, Resources: *vn.Resources.DeepCopy(),
		})
	}
	return out
}

func pricesOf(list *price.List) Prices {
	out := Prices{Currency: list.Currency, PerHour: map[string]float64{}}
	if !list.From.IsZero() {
		from := list.From.UTC()
		out.From = &from
	}
	for name, perHour := range list.PerHour {
		out.PerHour[string(name)] = perHour
	}
	return out
}

func kpisOf(values kpi.Values, movedAway int64) KPIs {
	known := func(name string) *float64 {
		value, ok := values[name]
		if !ok {
			return nil
		}
		return &value
	}
	milliseconds := func(name string, unit time.Duration) *int64 {
		value, ok := values[name]
		if !ok {
			return nil
		}
		n := int64(math.Round(value * float64(unit/time.Millisecond)))
		return &n
	}
	return KPIs{
		Uptime1h: known(kpi.Uptime1h), Uptime24h: known(kpi.Uptime24h),
		Uptime7d: known(kpi.Uptime7d), Uptime30d: known(kpi.Uptime30d),
		LatencyMilliseconds: milliseconds(kpi.LatencyMilliseconds, time.Millisecond),
		PodStartP50Millis:   milliseconds(kpi.PodStartP50Seconds, time.Second),
		PodStartP90Millis:   milliseconds(kpi.PodStartP90Seconds, time.Second),
		FailureRate:         known(kpi.FailureRate), MovedAway: movedAway,
	}
}

func conditionsOf(conditions []metav1.Condition) []Condition {
	var out []Condition
	for i := range conditions {
		c := &conditions[i]
		out = append(out, Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.UTC(),
		})
	}
	return out
}

// SampleOf is a provider at a moment.
func SampleOf(p *Provider, at time.Time) Sample {
	cpus := func(of corev1.ResourceList) float64 { return of.Cpu().AsApproximateFloat64() }
	return Sample{
		At: at, Ready: p.Ready, LatencyMilliseconds: p.KPIs.LatencyMilliseconds, Pods: p.Pods,
		CPUAssigned: cpus(p.Resources.Assigned), CPUGranted: cpus(p.Resources.Granted),
	}
}

// GapsOf shows the gaps in a provider's uptime.
func GapsOf(gaps []v1alpha1.Gap) []Gap {
	out := []Gap{}
	for _, g := range gaps {
		out = append(out, Gap{From: g.From.UTC(), To: g.To.UTC(), Kind: string(g.Kind)})
	}
	return out
}

// PlacementOf shows where a pod of a consumer is; the consumer "" is the broker's own cluster.
func PlacementOf(pod *corev1.Pod, consumer string) Placement {
	out := Placement{
		Namespace: pod.Namespace, Pod: pod.Name, Consumer: consumer,
		VirtualNode: pod.Labels[v1alpha1.VirtualNodeLabel],
		MovingFrom:  pod.Annotations[v1alpha1.MovingFromAnnotation],
		Decision:    pod.Annotations[v1alpha1.DecisionAnnotation],
		Phase:       string(cmp.Or(pod.Status.Phase, corev1.PodPending)),
		Ready:       placement.Ready(pod),
		Created:     pod.CreationTimestamp.UTC(),
	}
	assigned := placement.Condition(pod, v1alpha1.ConditionAssigned)
	switch {
	case out.VirtualNode != "":
		out.Provider = pod.Labels[v1alpha1.ProviderLabel]
		if score, _, ok := verdict.ParseShort(out.Decision); ok {
			out.Score = &score
		}
		if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation]); err == nil {
			at = at.UTC()
			out.Since = &at
		}
	case out.MovingFrom == "" && !placement.Terminal(pod) && assigned != nil && assigned.Status == corev1.ConditionFalse:
		// The message of a pod that is assigned or moving is from the last time that it waited.
		out.Message = assigned.Message
	}
	return out
}

// PolicyOf shows a policy to callers who may see all of it.
func PolicyOf(p *v1alpha1.PlacementPolicy) Policy {
	out := Policy{
		Name: p.Name, Priority: p.Spec.Priority, Filter: p.Spec.Filter, Score: p.Spec.Score, Pods: p.Status.Pods,
		Consumers: slices.Clone(p.Spec.Consumers), Providers: slices.Clone(p.Spec.Providers),
		Conditions: conditionsOf(p.Status.Conditions),
	}
	for _, w := range p.Spec.Weights {
		out.Weights = append(out.Weights, Weight{Name: w.Name, Weight: w.Weight})
	}
	if s := p.Spec.Selection; s != nil {
		out.Selection = &Selection{
			Mode: string(cmp.Or(s.Mode, v1alpha1.SelectAllBut)), Providers: append([]string{}, s.Providers...),
		}
	} else {
		// The API's default sets it in a selection as well, where it has no meaning.
		out.Failover = string(p.Spec.Failover.Mode)
	}
	if p.Spec.MaxUnavailable != nil {
		out.MaxUnavailable = p.Spec.MaxUnavailable.String()
	}
	return out
}
