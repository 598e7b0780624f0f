package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// GetProviders prints provider clusters.
func (s *Session) GetProviders(ctx context.Context, q Query) error {
	// Providers have no namespace; like kubectl, ignore the flag.
	q.AllNamespaces = false
	if err := q.validate(); err != nil {
		return err
	}
	v := &view{
		list: &v1alpha1.ProviderClusterList{}, one: &v1alpha1.ProviderCluster{},
		options: q.selected(), matches: q.matches, columns: s.providerColumns(), nothing: "No resources found",
	}
	if q.Consumer != "" {
		if err := s.checkConsumer(ctx, q.Consumer); err != nil {
			return err
		}
		selected, err := s.selectedBy(ctx, q.Consumer)
		if err != nil {
			return err
		}
		v.columns = slices.Insert(v.columns, 2, column{name: "Selected", cell: func(o client.Object) string {
			return fmt.Sprint(selected(o.GetName()))
		}})
	}
	return s.printView(ctx, v, &q)
}

// selectedBy returns a function that reports whether a consumer selected a provider. It did if each of the policies
// that have a selection of the consumer includes the provider.
func (s *Session) selectedBy(ctx context.Context, consumer string) (func(provider string) bool, error) {
	policies, err := s.list(ctx, &v1alpha1.PlacementPolicyList{})
	if err != nil {
		return nil, err
	}
	return func(provider string) bool {
		for _, o := range policies {
			policy, ok := o.(*v1alpha1.PlacementPolicy)
			if ok && slices.Contains(policy.Spec.Consumers, consumer) && !policy.Spec.Selection.Has(provider) {
				return false
			}
		}
		return true
	}, nil
}

func (s *Session) providerColumns() []column {
	of, wide := columnsOf[*v1alpha1.ProviderCluster]()
	return []column{
		of("Name", func(pc *v1alpha1.ProviderCluster) string { return pc.Name }),
		of("Status", providerStatus),
		of("Pods", func(pc *v1alpha1.ProviderCluster) string { return fmt.Sprint(pc.Status.Pods) }),
		of("CPU", func(pc *v1alpha1.ProviderCluster) string { return cmp.Or(pc.Status.Summary.CPU, unknown) }),
		of("Memory", func(pc *v1alpha1.ProviderCluster) string { return cmp.Or(pc.Status.Summary.Memory, unknown) }),
		of("Uptime", func(pc *v1alpha1.ProviderCluster) string { return cmp.Or(pc.Status.Summary.Uptime, unknown) }),
		of("Latency", func(pc *v1alpha1.ProviderCluster) string { return cmp.Or(pc.Status.Summary.Latency, unknown) }),
		of("Price", func(pc *v1alpha1.ProviderCluster) string {
			if pc.Status.ObservedGeneration == 0 { // No broker has written it.
				return cmp.Or(price.Of(&pc.Spec, nil).PerCPU(s.Now()), none)
			}
			return cmp.Or(pc.Status.Summary.Price, none)
		}),
		of("Age", func(pc *v1alpha1.ProviderCluster) string { return age(s.Now(), pc.CreationTimestamp.Time) }),
		wide("Region", func(pc *v1alpha1.ProviderCluster) string { return cmp.Or(pc.Spec.Region(), none) }),
		wide("Slices", slicesReady),
		wide("Pod-Start", podStart),
		wide("Failed", failed),
		wide("Moved", func(pc *v1alpha1.ProviderCluster) string { return fmt.Sprint(pc.Status.KPIs.MovedAway) }),
		wide("Message", message),
	}
}

// providerStatus returns the status column: the condition Ready and other reasons that keep new pods away, as for a
// Node.
func providerStatus(pc *v1alpha1.ProviderCluster) string {
	p := placement.Provider(pc, nil, nil)
	states := []string{"Unknown"}
	if ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady); ready != nil {
		switch ready.Status {
		case metav1.ConditionTrue:
			states[0] = "Ready"
		case metav1.ConditionFalse:
			states[0] = "NotReady"
		}
	}
	for _, also := range []struct {
		state string
		is    bool
	}{
		{"Recovering", p.Recovering},
		{"Disabled", !p.Enabled},
		{"Cordoned", p.Cordoned},
		{"Draining", p.Draining},
	} {
		if also.is {
			states = append(states, also.state)
		}
	}
	return strings.Join(states, ",")
}

// slicesReady returns the number of slices that can be assigned pods, and the number of all.
func slicesReady(pc *v1alpha1.ProviderCluster) string {
	ready, all := 0, placement.Provider(pc, nil, nil).Slices
	for i := range all {
		if all[i].Filter == verdict.Passed {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(all))
}

// podStart returns the median and the 90th percentile of the time from the assignment of a pod to Ready.
func podStart(pc *v1alpha1.ProviderCluster) string {
	start := pc.Status.KPIs.PodStart
	if start == nil {
		return unknown
	}
	p50 := time.Duration(start.P50Milliseconds) * time.Millisecond
	p90 := time.Duration(start.P90Milliseconds) * time.Millisecond
	return fmt.Sprintf("%s/%s", p50, p90)
}

// failed returns the share of assignments that failed.
func failed(pc *v1alpha1.ProviderCluster) string {
	rate, known := kpi.ValuesOf(&pc.Status.KPIs)[kpi.FailureRate]
	if !known {
		return unknown
	}
	return fmt.Sprintf("%.1f%%", 100*rate)
}

// message returns the reason why a provider, or else each of its slices, can be assigned no pod.
func message(pc *v1alpha1.ProviderCluster) string {
	for _, kind := range []string{v1alpha1.ProviderReady, v1alpha1.ProviderClean} {
		if c := meta.FindStatusCondition(pc.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	var reasons []string
	for i := range pc.Status.VirtualNodes {
		if vn := &pc.Status.VirtualNodes[i]; vn.Reason != "" {
			reasons = append(reasons, vn.Name+": "+vn.Reason)
		}
	}
	return cmp.Or(strings.Join(reasons, ", "), none)
}
