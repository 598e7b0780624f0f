package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// costlyFilters are what a tenant can write into one annotation: each once held up every decision of the broker, or took
// gigabytes of its memory. The %d makes every one another text.
var costlyFilters = map[string]string{
	"repeats":  "pod.annotations['x'].matches('" + strings.Repeat("a{0,999}", 50) + "$b%d')",
	"borrows":  "pod.annotations['x'].matches(pod.annotations['pattern']) || pod.name == '%d'",
	"doubles":  "optional.of(%d)" + strings.Repeat(".optMap(a, a)", 60) + ".hasValue()",
	"adds":     strings.Repeat("[[1] + [1]].all(x, ", 20) + "x.size() > %d" + strings.Repeat(")", 20),
	"searches": strings.Repeat("pod.annotations['x'].matches('(a?){100}b') || ", 40) + "pod.name == '%d'",
	"loops":    "[1, 2, 3].all(a, pod.annotations['x'].split('').all(b, pod.annotations['x'].split('').all(c, b + c != '%d')))",
}

// costly has forty pods with such filters wait, while the pods of others are assigned as if there were none.
func (b *brokered) costly(t *testing.T) {
	ns := b.namespace(t)
	start := func(name string) time.Duration {
		began := time.Now()
		b.create(t, ns, name, 1, nil)
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, name+"-0", "") })
		return time.Since(began)
	}
	median := func(name string) time.Duration {
		var took []time.Duration
		for i := range 3 {
			took = append(took, start(fmt.Sprintf("%s-%d", name, i)))
		}
		slices.Sort(took)
		return took[1]
	}
	idle := median("idle")

	for name, filter := range costlyFilters {
		number := 0
		b.create(t, ns, name, 7, func(p *corev1.Pod) {
			number++
			p.Annotations = map[string]string{
				"x": strings.Repeat("a", 1024), "pattern": "(a?){999}b",
				brokeringv1alpha1.FilterAnnotation: fmt.Sprintf(filter, number),
			}
		})
	}
	busy := median("busy")
	t.Logf("a pod runs after %s, and after %s with %d pods of costly filters", idle, busy, 7*len(costlyFilters))
	require.Less(t, busy, 2*idle+time.Second)
	for name := range costlyFilters {
		for i := range 7 {
			b.explained(t, ns, fmt.Sprintf("%s-%d", name, i), "InvalidCriteria")
		}
	}
}
