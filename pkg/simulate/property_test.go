package simulate

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// anyScenario draws a small scenario: a few providers that fail and are drained, and workloads that may not fit.
func anyScenario(t *rapid.T) *Scenario {
	duration := func(name string, most time.Duration) metav1.Duration {
		return metav1.Duration{Duration: time.Duration(rapid.Int64Range(1, int64(most/time.Second)).Draw(t, name)) * time.Second}
	}
	sc := &Scenario{
		Start: metav1.NewTime(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)), Duration: metav1.Duration{Duration: time.Hour + 20*time.Minute},
		Seed:   rapid.Uint64().Draw(t, "seed"),
		Broker: Broker{MovesAtOnce: new(int)},
	}
	*sc.Broker.MovesAtOnce = rapid.IntRange(1, 20).Draw(t, "moves at once")
	providers := rapid.IntRange(1, 4).Draw(t, "providers")
	for i := range providers {
		sc.Providers = append(sc.Providers, Provider{
			ID: fmt.Sprintf("p%d", i), Attributes: map[string]string{"price": fmt.Sprintf("0.0%d", i+1)},
			Granted: corev1.ResourceList{
				"cpu": *cores(rapid.Int64Range(1, 8).Draw(t, "cpu")), "memory": *cores(8 << 30), "pods": *cores(20),
			},
			Start: Distribution{Distribution: exponential, Mean: duration("start", time.Minute)},
		})
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "workloads") {
		w := Workload{
			Name: fmt.Sprintf("w%d", i), Labels: map[string]string{"app": fmt.Sprintf("w%d", i)},
			Arrivals:       Arrivals{PerHour: rapid.Float64Range(0, 15).Draw(t, "rate"), Initial: rapid.IntRange(0, 5).Draw(t, "initial")},
			Lifetime:       Distribution{Distribution: lognormal, Mean: duration("lifetime", time.Hour)},
			RestartsOnMove: rapid.Bool().Draw(t, "restarts"),
			Requests:       corev1.ResourceList{"cpu": *cores(rapid.Int64Range(1, 4).Draw(t, "request"))},
		}
		if rapid.Bool().Draw(t, "never") {
			w.Annotations = map[string]string{v1alpha1.FailoverAnnotation: string(v1alpha1.FailoverNever)}
		}
		sc.Consumers = append(sc.Consumers, Consumer{ID: fmt.Sprintf("c%d", i), Workloads: []Workload{w}})
	}
	for range rapid.IntRange(0, 8).Draw(t, "events") {
		sc.Events = append(sc.Events, Event{
			At: duration("at", time.Hour), Provider: sc.Providers[rapid.IntRange(0, providers-1).Draw(t, "provider")].ID,
			Action: rapid.SampledFrom(actions()).Draw(t, "action"),
		})
	}
	return sc
}

// In each scenario the sums of the report hold, no provider has more than it grants, no pod is at two providers in a
// row, and a second run is the same.
func TestReportsOfAnyScenario(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sc := anyScenario(r)
		require.Empty(r, sc.validate())
		report, err := Run(t.Context(), sc, options())
		require.NoError(r, err)
		checkReport(r, sc, report)
		for _, of := range report.records {
			require.LessOrEqual(r, len(of.places), of.moves+1, of.id())
			if !of.ended.IsZero() {
				require.NotEmpty(r, of.places, of.id())
				require.True(r, of.ended.After(of.placed), of.id())
			}
		}
		again, err := Run(t.Context(), sc, options())
		require.NoError(r, err)
		var one, other bytes.Buffer
		require.NoError(r, Compare(report).WriteCSV(&one))
		require.NoError(r, Compare(again).WriteCSV(&other))
		require.Equal(r, one.String(), other.String())
	})
}
