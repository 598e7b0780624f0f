package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// statusColumn is what the column of the state is called in every table.
const statusColumn = "Status"

// GetProviders shows the provider clusters.
func (s *Session) GetProviders(ctx context.Context, q Query) error {
	// Providers have no namespace: like kubectl, do not mind that one is asked for.
	q.AllNamespaces = false
	if err := q.validate(); err != nil {
		return err
	}
	v := &view{
		list: &v1alpha1.ProviderClusterList{}, one: &v1alpha1.ProviderCluster{},
		options: q.narrow(), keep: q.wants, columns: s.providerColumns(), nothing: "No resources found",
	}
	if q.Consumer != "" {
		if q.Watch {
			return errors.New("--watch does not follow what a consumer selects: leave out --consumer")
		}
		selected, err := s.selectedBy(ctx, q.Consumer)
		if err != nil {
			return err
		}
		v.columns = slices.Insert(v.columns, 2, column{name: "Selected", cell: func(o client.Object) string {
			return fmt.Sprint(selected(o.GetName()))
		}})
	}
	return s.show(ctx, v, &q)
}

// selectedBy tells which providers a consumer selected, in all the policies that say so: each of them counts.
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
	of := func(name string, cell func(*v1alpha1.ProviderCluster) string) column {
		return column{name: name, cell: func(o client.Object) string {
			pc, ok := o.(*v1alpha1.ProviderCluster)
			if !ok {
				return unknown
			}
			return cell(pc)
		}}
	}
	wide := func(c column) column { c.wide = true; return c }
	fleeting := func(c column) column { c.fleeting = true; return c }
	return []column{
		of("Name", func(pc *v1alpha1.ProviderCluster) string { return pc.Name }),
		of(statusColumn, providerStatus),
		of("Pods", func(pc *v1alpha1.ProviderCluster) string { return fmt.Sprint(pc.Status.Pods) }),
		of("CPU", func(pc *v1alpha1.ProviderCluster) string { return orUnknown(pc.Status.Summary.CPU) }),
		of("Memory", func(pc *v1alpha1.ProviderCluster) string { return orUnknown(pc.Status.Summary.Memory) }),
		of("Uptime", func(pc *v1alpha1.ProviderCluster) string { return orUnknown(pc.Status.Summary.Uptime) }),
		of("Latency", func(pc *v1alpha1.ProviderCluster) string { return orUnknown(pc.Status.Summary.Latency) }),
		of("Price", func(pc *v1alpha1.ProviderCluster) string { return orNone(pc.Spec.Attributes["price"]) }),
		fleeting(of("Age", func(pc *v1alpha1.ProviderCluster) string { return s.age(pc.CreationTimestamp) })),
		wide(of("Region", func(pc *v1alpha1.ProviderCluster) string { return orNone(pc.Spec.Attributes["region"]) })),
		wide(of("Slices", slicesReady)),
		wide(of("Pod-Start", podStart)),
		wide(of("Failed", failed)),
		wide(of("Moved", func(pc *v1alpha1.ProviderCluster) string { return fmt.Sprint(pc.Status.KPIs.MovedAway) })),
		wide(of("Message", message)),
	}
}

// providerStatus words whether a provider can be given pods, and what speaks against it, as for a Node.
func providerStatus(pc *v1alpha1.ProviderCluster) string {
	words := []string{"Unknown"}
	if ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady); ready != nil {
		switch ready.Status {
		case metav1.ConditionTrue:
			words[0] = "Ready"
		case metav1.ConditionFalse:
			words[0] = "NotReady"
		}
	}
	for _, also := range []struct {
		word string
		true bool
	}{
		{"Recovering", meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ProviderClean)},
		{"Disabled", !enabled(pc)},
		{"Cordoned", pc.Spec.Cordoned},
		{"Draining", pc.Spec.Drain},
	} {
		if also.true {
			words = append(words, also.word)
		}
	}
	return strings.Join(words, ",")
}

func enabled(pc *v1alpha1.ProviderCluster) bool { return pc.Spec.Enabled == nil || *pc.Spec.Enabled }

// slicesReady counts the slices of a provider of which the virtual kubelet is alive.
func slicesReady(pc *v1alpha1.ProviderCluster) string {
	ready := 0
	for i := range pc.Status.VirtualNodes {
		if pc.Status.VirtualNodes[i].Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(pc.Status.VirtualNodes))
}

// podStart is how long pods take to start: the median, and 9 of 10.
func podStart(pc *v1alpha1.ProviderCluster) string {
	took := pc.Status.KPIs.PodStart
	if took == nil {
		return unknown
	}
	p50, p90 := time.Duration(took.P50Milliseconds)*time.Millisecond, time.Duration(took.P90Milliseconds)*time.Millisecond
	return fmt.Sprintf("%s/%s", p50, p90)
}

// failed is the share of assignments that came to nothing.
func failed(pc *v1alpha1.ProviderCluster) string {
	k := &pc.Status.KPIs
	if k.Started+k.Failed == 0 {
		return unknown
	}
	return fmt.Sprintf("%.1f%%", 100*float64(k.Failed)/float64(k.Started+k.Failed))
}

// message is why a provider is not ready.
func message(pc *v1alpha1.ProviderCluster) string {
	for _, kind := range []string{v1alpha1.ProviderReady, v1alpha1.ProviderClean} {
		if c := meta.FindStatusCondition(pc.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	return none
}
