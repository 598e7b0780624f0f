package ledger

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

var began = time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time {
	return began.Add(time.Duration(minutes * float64(time.Minute)))
}

func holding(uid, provider string, assigned time.Time, milliCPU int64) *Holding {
	return &Holding{
		UID: types.UID(uid), Consumer: "c1", Namespace: "shop", Pod: uid, Workload: "web", Provider: provider, Assigned: assigned,
		Requests: resources.Amounts{corev1.ResourceCPU: milliCPU, corev1.ResourcePods: 1},
	}
}

// times returns start and stop of each segment in minutes, with its provider and CPUs.
func times(segments []Segment) (all []string) {
	latest := map[string]int{}
	for _, s := range segments {
		stop := "…"
		if !s.Stop.IsZero() {
			stop = fmt.Sprint(s.Stop.Sub(began).Minutes())
		}
		key := fmt.Sprint(s.UID, s.Start)
		text := fmt.Sprintf("%s %g-%s %d", s.Provider, s.Start.Sub(began).Minutes(), stop, s.Requests[corev1.ResourceCPU])
		if i, known := latest[key]; known {
			all[i] = text
			continue
		}
		latest[key] = len(all)
		all = append(all, text)
	}
	return all
}

func TestBook(t *testing.T) {
	ended := func(h *Holding, at time.Time) *Holding {
		h.Ended = at
		return h
	}
	for name, tc := range map[string]struct {
		do   func(b *Book)
		want []string
	}{
		"a pod runs": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Observe(at(5), holding("p", "q", at(0), 1))
		}, []string{"q 0-… 1"}},
		"a pod that completes is charged until it ended": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Observe(at(9), ended(holding("p", "q", at(0), 1), at(7)))
			b.Observe(at(10), ended(holding("p", "q", at(0), 1), at(7)))
			b.Release(at(20), "p")
		}, []string{"q 0-7 1"}},
		"a pod that had ended when it was seen first": {func(b *Book) {
			b.Observe(at(9), ended(holding("p", "q", at(0), 1), at(7)))
		}, []string{"q 0-7 1"}},
		"a pod moves": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Release(at(3), "p") // It leaves, and may run there for long.
			b.Observe(at(5), holding("p", "r", at(4), 1))
			b.Release(at(9), "p")
		}, []string{"q 0-3 1", "r 4-9 1"}},
		"a move that was not seen": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Observe(at(5), holding("p", "r", at(4), 1))
		}, []string{"q 0-4 1", "r 4-… 1"}},
		"a pod returns to a provider": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Observe(at(5), holding("p", "q", at(4), 1))
		}, []string{"q 0-4 1", "q 4-… 1"}},
		"a pod is resized": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Observe(at(5), holding("p", "q", at(0), 2))
			b.Release(at(6), "p")
		}, []string{"q 0-5 1", "q 5-6 2"}},
		"clocks that disagree": {func(b *Book) {
			b.Observe(at(10), holding("p", "q", at(10), 1))
			b.Observe(at(11), holding("p", "r", at(2), 1)) // The broker that moved it is late.
			b.Release(at(1), "p")
		}, []string{"q 10-10 1", "r 10.000016666666667-10.000016666666667 1"}},
		"a cache that lags": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.ReleaseOthers(at(2), nil) // The first list does not show it.
			b.Observe(at(3), holding("p", "q", at(0), 1))
		}, []string{"q 0-2 1", "q 2-… 1"}},
		"an assignment that is earlier by its clock": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Release(at(5), "p")
			b.Observe(at(6), holding("p", "r", at(4), 1))
			b.Forget(at(7), "p")
			b.Forget(at(8), "p")
		}, []string{"q 0-5 1", "r 5-7 1"}},
		"a pod that is gone, or was never there": {func(b *Book) {
			b.Observe(at(1), holding("p", "q", at(0), 1))
			b.Observe(at(1), holding("o", "q", at(1), 1))
			b.ReleaseOthers(at(2), map[types.UID]bool{"o": true})
			b.Release(at(3), "p")
			b.Release(at(3), "n")
		}, []string{"q 0-2 1", "q 1-… 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook(nil)
			tc.do(b)
			require.Equal(t, tc.want, times(b.Changed()))
		})
	}
}

func file(t interface{ TempDir() string }) string { return filepath.Join(t.TempDir(), "ledger.db") }

func opened(t *testing.T, file string) *Store {
	t.Helper()
	s, err := Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func all(t require.TestingT, s *Store) (segments []Segment) {
	require.NoError(t, s.Segments(context.Background(), at(-1e6), at(1e6), nil, func(s *Segment) error {
		segments = append(segments, *s)
		return nil
	}))
	return segments
}

func TestTheStoreContinues(t *testing.T) {
	path := file(t)
	first := opened(t, path)
	open, alive, err := first.Lead(t.Context())
	require.NoError(t, err)
	require.Empty(t, open)
	require.Zero(t, alive)
	b := NewBook(nil)
	b.Observe(at(1), holding("gone", "q", at(0), 1))
	b.Observe(at(1), holding("stays", "q", at(0.5), 2))
	lists := price.Lists{{Currency: "EUR", From: at(-5), PerHour: map[corev1.ResourceName]float64{"cpu": 0.5}}}
	require.NoError(t, first.Write(t.Context(), at(2), b.Changed(), map[string]PriceChange{"q": {at(2), lists}}))
	require.NoError(t, first.Write(t.Context(), at(3), b.Changed(), nil), "a write whose answer was lost is repeated")

	second := opened(t, path)
	open, alive, err = second.Lead(t.Context())
	require.NoError(t, err)
	require.Equal(t, at(3), alive.UTC())
	require.Len(t, open, 2)
	require.ErrorIs(t, first.Write(t.Context(), at(4), nil, nil), ErrFenced)

	b = NewBook(open)
	b.Observe(alive, holding("stays", "q", at(0.5), 2))
	b.ReleaseOthers(alive, map[types.UID]bool{"stays": true})
	require.NoError(t, second.Write(t.Context(), at(5), b.Changed(), nil))
	require.Equal(t, []string{"q 0-3 1", "q 0.5-… 2"}, times(all(t, second)))
	// The end of a segment stays.
	late := b.Changed()[0]
	late.Stop = at(9)
	require.NoError(t, second.Write(t.Context(), at(6), []Segment{late}, nil))
	require.Equal(t, []string{"q 0-3 1", "q 0.5-… 2"}, times(all(t, second)))
	prices, err := second.Prices(t.Context())
	require.NoError(t, err)
	latest := prices.Latest()["q"]
	require.Equal(t, at(2), latest.At.UTC())
	require.False(t, latest.Differs(lists))
	require.True(t, latest.Differs(nil))
	require.NoError(t, second.Write(t.Context(), at(7), nil, map[string]PriceChange{"q": {at(7), nil}}))
	require.NoError(t, second.Forget(t.Context(), at(4)))
	require.Len(t, func() []observed { p, _ := second.Prices(t.Context()); return p.of["q"] }(), 2, "they applied at the time")
	require.Equal(t, []string{"q 0.5-… 2"}, times(all(t, second)))
}

func TestFilesThatAreNoLedger(t *testing.T) {
	_, err := OpenReadOnly(t.Context(), file(t))
	require.Error(t, err)
	path := file(t)
	s := opened(t, path)
	_, err = s.db.ExecContext(t.Context(), `UPDATE meta SET value = '2' WHERE key = 'schema'`)
	require.NoError(t, err)
	for _, open := range []func(context.Context, string) (*Store, error){Open, OpenReadOnly} {
		_, err = open(t.Context(), path)
		require.ErrorContains(t, err, "it has version 2 of the schema, and this program knows version 1")
	}
	_, err = Open(t.Context(), t.TempDir())
	require.Error(t, err)
}

func TestAReaderNeedsNoWriter(t *testing.T) {
	path := file(t)
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	_, _, err = s.Lead(t.Context())
	require.NoError(t, err)
	b := NewBook(nil)
	b.Observe(at(1), holding("p", "q", at(0), 1))
	require.NoError(t, s.Write(t.Context(), at(2), b.Changed(), nil))
	for _, writer := range []string{"runs", "has ended"} {
		if writer == "has ended" {
			require.NoError(t, s.Close())
		}
		reader, err := OpenReadOnly(t.Context(), path)
		require.NoError(t, err, writer)
		require.Len(t, all(t, reader), 1)
		_, _, err = reader.Lead(t.Context())
		require.Error(t, err)
		require.NoError(t, reader.Close())
	}
}

func TestChargesFollowPrices(t *testing.T) {
	s := opened(t, file(t))
	_, _, err := s.Lead(t.Context())
	require.NoError(t, err)
	b := NewBook(nil)
	b.Observe(at(0), holding("p", "q", at(0), 2000))
	b.Observe(at(0), holding("unpriced", "r", at(0), 1000))
	b.Release(at(120), "p")
	lists := func(perCPU float64) price.Lists {
		return price.Lists{
			{Currency: "EUR", PerHour: map[corev1.ResourceName]float64{"cpu": perCPU}},
			{Currency: "EUR", From: at(90), PerHour: map[corev1.ResourceName]float64{"cpu": 10 * perCPU}},
		}
	}
	require.NoError(t, s.Write(t.Context(), at(30), b.Changed(), map[string]PriceChange{"q": {at(30), lists(1)}}))
	require.NoError(t, s.Write(t.Context(), at(150), nil, map[string]PriceChange{"q": {at(60), lists(2)}}))

	var rows []string
	q := &Query{From: at(-600), To: at(600), Step: time.Hour}
	require.NoError(t, s.Charges(t.Context(), q, func(c *Charge) error {
		if c.Resource == corev1.ResourceCPU {
			rows = append(rows, fmt.Sprintf("%s %g-%g %g × %s = %g", c.Pod, c.From.Sub(began).Minutes(), c.To.Sub(began).Minutes(),
				c.Quantity, c.Price, c.Cost))
		}
		return nil
	}))
	require.Equal(t, []string{
		"p 0-60 2 × 1 EUR = 2", "p 60-90 1 × 2 EUR = 2", "p 90-120 1 × 20 EUR = 20",
		"unpriced 0-60 1 × 0 = 0", "unpriced 60-120 1 × 0 = 0", "unpriced 120-150 0.5 × 0 = 0",
	}, rows)

	sum, one := NewSum(ByConsumer, ByProvider), "c1"
	require.NoError(t, s.Charges(t.Context(), &Query{From: at(30), To: at(600), Consumer: &one}, func(c *Charge) error {
		sum.Add(c)
		return nil
	}))
	require.Equal(t, []*Row{
		{Key: []string{"c1", "q"}, Hours: map[corev1.ResourceName]float64{"cpu": 3, "pods": 1.5}, Cost: map[string]float64{"EUR": 23}},
		{
			Key: []string{"c1", "r"}, Hours: map[corev1.ResourceName]float64{"cpu": 2, "pods": 2}, Cost: map[string]float64{},
			Unpriced: 2,
		},
	}, sum.Rows())
	none := ""
	require.NoError(t, s.Charges(t.Context(), &Query{From: at(30), To: at(600), Consumer: &none}, func(*Charge) error {
		return fmt.Errorf("the broker's own pods have none")
	}))
}

func TestRowsOfFOCUS(t *testing.T) {
	var out bytes.Buffer
	w, err := NewCSV(&out)
	require.NoError(t, err)
	of := &Segment{Holding: *holding("web-0", "oslo", at(0), 500), Start: at(0)}
	list := &price.List{Currency: "EUR", PerHour: map[corev1.ResourceName]float64{"cpu": 0.04}}
	require.NoError(t, w.Write(charge(of, corev1.ResourceCPU, list, at(30), at(60))))
	require.NoError(t, w.Close())
	rows, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	row := map[string]string{}
	for i, name := range rows[0] {
		row[name] = rows[1][i]
	}
	for name, want := range map[string]string{
		"BillingAccountId": "c1", "BillingCurrency": "EUR",
		"BillingPeriodStart": "2026-11-01T00:00:00Z", "BillingPeriodEnd": "2026-12-01T00:00:00Z",
		"ChargePeriodStart": "2026-11-29T10:30:00Z", "ChargePeriodEnd": "2026-11-29T11:00:00Z",
		"ChargeCategory": "Usage", "BilledCost": "0.01", "EffectiveCost": "0.01", "ListUnitPrice": "0.04",
		"PricingQuantity": "0.25", "PricingUnit": "Core-Hours", "ServiceProviderName": "broker", "HostProviderName": "oslo",
		"ResourceId": "web-0", "SubAccountId": "shop", "SkuId": "cpu", "Tags": `{"workload": "web"}`,
	} {
		require.Equal(t, want, row[name], name)
	}
}

// The ledger is the integral of the time in which pods held resources, for every history of moves, ends, and brokers
// that crash between two writes. A crash loses for each pod no more than the time since the last write.
func TestTheLedgerIsTheIntegral(t *testing.T) {
	path := file(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := fmt.Sprint(path, n)
		store, err := Open(context.Background(), path)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		_, _, err = store.Lead(context.Background())
		require.NoError(t, err)
		book := NewBook(nil)
		now, written := began, began
		held, truth, slack := map[types.UID]*Holding{}, map[types.UID]time.Duration{}, map[types.UID]time.Duration{}
		next := 0
		release := func(uid types.UID) {
			truth[uid] += now.Sub(held[uid].Assigned)
			delete(held, uid)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 900_000).Draw(t, "milliseconds")) * time.Millisecond)
			uid := types.UID(fmt.Sprint("p", rapid.IntRange(0, 3).Draw(t, "pod")))
			h := held[uid]
			crashed := rapid.IntRange(0, 7).Draw(t, "crash") == 0
			switch what := rapid.SampledFrom([]string{"place", "move", "leave", "write"}).Draw(t, "what"); {
			case what == "place" && h == nil, what == "move" && h != nil:
				if h != nil {
					release(uid)
				}
				held[uid] = holding(string(uid), fmt.Sprint("q", next%3), now, 1000)
				next++
				if !crashed {
					book.Observe(now, held[uid])
				}
			case what == "leave" && h != nil:
				release(uid)
				if !crashed {
					book.Release(now, uid)
				}
			case what == "write" && !crashed:
				require.NoError(t, store.Write(context.Background(), now, book.Changed(), nil))
				book.Flush(len(book.Changed()))
				written = now
			}
			if !crashed {
				continue
			}
			// No broker saw the last step; the next one reads the pods that there are.
			for _, uid := range []types.UID{"p0", "p1", "p2", "p3"} {
				slack[uid] += now.Sub(written)
			}
			open, alive, err := store.Lead(context.Background())
			require.NoError(t, err)
			if alive.IsZero() {
				alive = now
			}
			book = NewBook(open)
			holding := map[types.UID]bool{}
			for uid, h := range held {
				holding[uid] = true
				book.Observe(alive, h)
			}
			book.ReleaseOthers(alive, holding)
		}
		for uid := range held {
			release(uid)
			book.Release(now, uid)
		}
		require.NoError(t, store.Write(context.Background(), now, book.Changed(), nil))
		counted, last := map[types.UID]time.Duration{}, map[types.UID]time.Time{}
		for _, s := range all(t, store) {
			require.False(t, s.Start.Before(last[s.UID]), "segments of %s overlap", s.UID)
			require.False(t, s.Stop.IsZero())
			counted[s.UID] += s.Stop.Sub(s.Start)
			last[s.UID] = s.Stop
		}
		for uid, want := range truth {
			missed := want - counted[uid]
			require.LessOrEqual(t, missed, slack[uid], "%s was charged too little", uid)
			require.GreaterOrEqual(t, missed, -2*time.Millisecond*time.Duration(next), "%s was charged too much", uid)
		}
	})
}

// A month of 100 pods with four resources, in hours, is 288,000 rows.
func BenchmarkExport(b *testing.B) {
	s, err := Open(b.Context(), file(b))
	require.NoError(b, err)
	defer s.Close()
	_, _, err = s.Lead(b.Context())
	require.NoError(b, err)
	book := NewBook(nil)
	for i := range 100 {
		h := holding(fmt.Sprint("p", i), "q", at(0), 1000)
		h.Requests[corev1.ResourceMemory], h.Requests["nvidia.com/gpu"] = 1<<30, 1
		book.Observe(at(0), h)
	}
	lists := price.Lists{{PerHour: map[corev1.ResourceName]float64{"cpu": 1}}}
	require.NoError(b, s.Write(b.Context(), at(720*60), book.Changed(), map[string]PriceChange{"q": {at(0), lists}}))
	for b.Loop() {
		rows, total := 0, 0.0
		q := &Query{From: at(0), To: at(720 * 60), Step: time.Hour}
		require.NoError(b, s.Charges(b.Context(), q, func(c *Charge) error {
			rows++
			total += c.Cost
			return nil
		}))
		require.Equal(b, 288_000, rows)
		require.Less(b, math.Abs(total-72_000), 1e-3)
	}
}
