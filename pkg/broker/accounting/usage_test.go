package accounting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// counting is a book whose changes are counted.
type counting struct {
	t       *testing.T
	book    *ledger.Book
	usage   *usage
	metrics *Metrics
	prices  map[string]ledger.PriceChange
}

var began = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

func newCounting(t *testing.T, since time.Duration) *counting {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewPedanticRegistry())
	require.NoError(t, err)
	return &counting{
		t: t, book: ledger.NewBook(nil), metrics: metrics, usage: newUsage(metrics, began.Add(since)),
		prices: map[string]ledger.PriceChange{"p1": {At: began, Lists: price.Lists{{
			Currency: "EUR", PerHour: map[corev1.ResourceName]float64{corev1.ResourceCPU: 3.6},
		}}}},
	}
}

func (c *counting) holds(uid types.UID, provider string, assigned, seen time.Duration) {
	c.book.Observe(began.Add(seen), &ledger.Holding{
		UID: uid, Consumer: "c1", Provider: provider, Assigned: began.Add(assigned),
		Requests: resources.Amounts{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 0},
	})
}

// count counts at a time, as each write of the ledger does.
func (c *counting) count(at time.Duration) {
	c.usage.count(began.Add(at), c.book.Changed(), c.book.Open(), c.prices)
	c.book.Flush(len(c.book.Changed()))
}

// has requires that so many seconds of cores were counted, and their cost.
func (c *counting) has(provider string, cpuSeconds, cost float64) {
	c.t.Helper()
	require.InDelta(c.t, cpuSeconds, testutil.ToFloat64(c.metrics.resources.WithLabelValues("c1", provider, "cpu")), 1e-6)
	require.InDelta(c.t, cost, testutil.ToFloat64(c.metrics.cost.WithLabelValues("c1", provider, "EUR")), 1e-6)
}

func TestTheMetricsCountEachSecondOnce(t *testing.T) {
	c := newCounting(t, 0)
	c.holds("a", "p1", 0, 0)
	c.count(10 * time.Second)
	c.has("p1", 20, 0.02)
	c.count(10 * time.Second)
	c.has("p1", 20, 0.02)
	c.count(15 * time.Second)
	c.has("p1", 30, 0.03)
	require.Equal(t, 1, testutil.CollectAndCount(c.metrics.resources), "nothing is counted of what is not requested")

	c.holds("a", "p2", 17*time.Second, 18*time.Second) // It has moved, and p2 has no price.
	c.count(20 * time.Second)
	c.has("p1", 34, 0.034)
	c.has("p2", 6, 0)

	c.book.Forget(began.Add(22*time.Second), "a")
	c.holds("b", "p1", 21*time.Second, 21*time.Second) // It began and ended between two writes.
	c.book.Forget(began.Add(24*time.Second), "b")
	c.count(30 * time.Second)
	c.has("p1", 40, 0.04)
	c.has("p2", 10, 0)
	c.count(40 * time.Second)
	c.has("p1", 40, 0.04)
	require.Empty(t, c.usage.until)
}

// The earlier leader has counted until its last write.
func TestALeaderCountsFromTheLastWrite(t *testing.T) {
	c := newCounting(t, 8*time.Second)
	c.holds("a", "p1", 0, 8*time.Second)
	c.count(10 * time.Second)
	c.has("p1", 4, 0.004)
}

func TestAClockThatStepsBackCountsNothingTwice(t *testing.T) {
	c := newCounting(t, 0)
	c.holds("a", "p1", 0, 0)
	c.count(10 * time.Second)
	c.count(5 * time.Second)
	c.count(12 * time.Second)
	c.has("p1", 24, 0.024)
}

func TestAProviderDoesNotFillTheMetricsWithCurrencies(t *testing.T) {
	c := newCounting(t, 0)
	c.holds("a", "p1", 0, 0)
	for i := range 100 {
		c.prices["p1"].Lists[0].Currency = fmt.Sprintf("C%02d", i)
		c.count(time.Duration(i+1) * time.Second)
	}
	require.Equal(t, maxCurrencies, testutil.CollectAndCount(c.metrics.cost))
}

// A leader counts each write; the next one counts from the last write.
func TestEachWriteIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.pod("web-0", "q", 0))
		counts := func(minutes float64) {
			t.Helper()
			counted := w.accountant.Metrics.resources.WithLabelValues("c1", "q", "cpu")
			require.InDelta(t, 2*minutes*60, testutil.ToFloat64(counted), 2*2*interval.Seconds())
		}
		stop := w.lead()
		w.minute(10)
		require.NoError(t, stop())
		counts(10)
		w.minute(15)
		stop = w.lead()
		w.minute(20)
		require.NoError(t, stop())
		counts(10)
	})
}
