package share

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// ofConsumer is slice n of a consumer, which requests cores.
func ofConsumer(consumer string, n int, requested int64, granted resources.Amounts) Slice {
	s := slice(n, cores(requested), granted)
	s.Consumer, s.Name.Namespace = consumer, "liqo-tenant-"+consumer
	return s
}

func weights(of map[string]int64) map[string]fairshare.Terms {
	terms := map[string]fairshare.Terms{}
	for consumer, weight := range of {
		terms[consumer] = fairshare.Terms{Weight: weight}
	}
	return terms
}

func coresOf(slices []Slice, offers Decision) map[string]int64 {
	by := map[string]int64{}
	for i := range slices {
		by[slices[i].Consumer] += offers.Offers[slices[i].Name].Granted[corev1.ResourceCPU] / core
	}
	return by
}

func TestSharesByWeight(t *testing.T) {
	slices := []Slice{ofConsumer("c1", 1, 100, nil), ofConsumer("c2", 2, 100, nil), ofConsumer("c3", 3, 100, nil)}
	d := Decide(sumOf(60), Rules{Overcommit: 1, Shares: weights(map[string]int64{"c2": 2, "c3": 3})}, slices)
	require.Equal(t, map[string]int64{"c1": 10, "c2": 20, "c3": 30}, coresOf(slices, d))
	require.Equal(t, "cpu: 100 requested, 20 granted of the share 20 of consumer c2 in 60 (weight 2)", d.Offers[slices[1].Name].Reason)
}

// The oldest had everything. The others ask for their share.
func TestGrantsAreRecalledForOthers(t *testing.T) {
	slices := []Slice{ofConsumer("c1", 1, 60, cores(60)), ofConsumer("c2", 2, 60, nil)}
	rules := Rules{Overcommit: 1, Shares: map[string]fairshare.Terms{"c2": {Guaranteed: resources.Amounts{corev1.ResourceCPU: 20 * core}}}}
	d := Decide(sumOf(60), rules, slices)
	require.Equal(t, map[string]int64{"c1": 20, "c2": 40}, coresOf(slices, d))
	require.Contains(t, d.Offers[slices[1].Name].Reason, "(weight 1, guaranteed 20)")

	// Its pods still run: the other one gets only the free part, and the rest is reclaimed.
	slices[0].Running = cores(50)
	d = Decide(sumOf(60), rules, slices)
	require.Equal(t, map[string]int64{"c1": 20, "c2": 10}, coresOf(slices, d))
	granted := map[string]resources.Amounts{"c1": d.Offers[slices[0].Name].Granted, "c2": d.Offers[slices[1].Name].Granted}
	require.Equal(t, map[string]resources.Amounts{"c1": {corev1.ResourceCPU: 30 * core}},
		Reclaimed(sumOf(60), d.Entitled, granted, map[string]resources.Amounts{"c1": cores(50)}))
}

func TestOnlyTheLackingPartIsReclaimed(t *testing.T) {
	cpu := func(n int64) resources.Amounts { return resources.Amounts{corev1.ResourceCPU: n} }
	total := cpu(100)
	entitled := map[string]resources.Amounts{"lacks": cpu(30), "most": cpu(20), "less": cpu(20)}
	granted := map[string]resources.Amounts{"lacks": cpu(5), "most": cpu(20), "less": cpu(20)}
	used := map[string]resources.Amounts{"most": cpu(40), "less": cpu(30), "within": cpu(0)}
	require.Equal(t, map[string]resources.Amounts{"most": cpu(20), "less": cpu(5)}, Reclaimed(total, entitled, granted, used))
	granted["lacks"] = cpu(30)
	require.Empty(t, Reclaimed(total, entitled, granted, used))
	require.Empty(t, Reclaimed(total, nil, granted, used))
}

// A request that can never be granted takes nothing from the others.
func TestADeniedSliceTakesNothing(t *testing.T) {
	impossible := ofConsumer("c2", 2, 60, nil)
	impossible.Requested[gpu] = 1
	slices := []Slice{ofConsumer("c1", 1, 60, cores(60)), impossible}
	d := Decide(sumOf(60), Rules{Overcommit: 1, Shares: weights(nil)}, slices)
	require.Equal(t, map[string]int64{"c1": 60, "c2": 0}, coresOf(slices, d))
	require.Contains(t, d.Offers[impossible.Name].Reason, "nvidia.com/gpu: 1 requested, 0 left of ")
}

func TestALimitBoundsAShare(t *testing.T) {
	slices := []Slice{ofConsumer("c1", 1, 100, nil), ofConsumer("c2", 2, 100, nil)}
	d := Decide(sumOf(60), Rules{
		Overcommit: 1, Limits: map[string]resources.Amounts{"c1": {corev1.ResourceCPU: 12 * core}}, Shares: weights(nil),
	}, slices)
	require.Equal(t, map[string]int64{"c1": 12, "c2": 48}, coresOf(slices, d))
	require.Equal(t, "cpu: 100 requested, 12 granted of the limit 12 of ConsumerCluster c1", d.Offers[slices[0].Name].Reason)
}

// Divided into many slices a consumer gets as much as with one, and so do the others.
func TestSplittingGainsNothing(t *testing.T) {
	cases := 5_000
	if text := os.Getenv("FAIR_CASES"); text != "" {
		var err error
		cases, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range cases {
		total := int64(1 + random.IntN(500))
		var whole, split []Slice
		shares := map[string]fairshare.Terms{}
		for c := range 1 + random.IntN(4) {
			consumer := fmt.Sprint("c", c)
			shares[consumer] = fairshare.Terms{
				Weight: int64(1 + random.IntN(5)), Guaranteed: resources.Amounts{corev1.ResourceCPU: int64(random.IntN(100)) * core},
			}
			parts, sum := 1+random.IntN(4), int64(0)
			for i := range parts {
				requested := int64(1 + random.IntN(100))
				sum += requested
				split = append(split, ofConsumer(consumer, 10*c+i, requested, nil))
			}
			whole = append(whole, ofConsumer(consumer, 10*c, sum, nil))
		}
		rules := Rules{Overcommit: 1, Shares: shares}
		total2 := resources.Amounts{corev1.ResourceCPU: total * core, corev1.ResourceMemory: 1 << 20, corev1.ResourcePods: 1 << 20}
		one, many := Decide(total2, rules, whole), Decide(total2, rules, split)
		has := func(slices []Slice, d Decision) map[string]int64 {
			by := map[string]int64{}
			for i := range slices {
				by[slices[i].Consumer] += d.Offers[slices[i].Name].Granted[corev1.ResourceCPU]
			}
			return by
		}
		of, parts := has(whole, one), has(split, many)
		for consumer, amount := range of {
			require.InDelta(t, amount, parts[consumer], float64(len(shares)), "each division may round by a millicore")
		}
	}
}

func fairSituation(t *rapid.T) (resources.Amounts, Rules, []Slice) {
	sum, rules, slices := situation(t)
	rules.Shares = map[string]fairshare.Terms{}
	for i := range slices {
		slices[i].Consumer = fmt.Sprint("c", rapid.IntRange(1, 3).Draw(t, "consumer"))
		rules.Shares[slices[i].Consumer] = fairshare.Terms{
			Weight: rapid.Int64Range(1, 4).Draw(t, "weight"), Guaranteed: amounts(t, "guaranteed", 40),
		}
		slices[i].Running = amounts(t, "running", 20)
	}
	return sum, rules, slices
}

func TestSharedOffersNeverExceedTheSumAndSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, rules, slices := fairSituation(t)
		d := Decide(sum, rules, slices)
		total := resources.Amounts{}
		by := map[string]resources.Amounts{}
		for _, s := range slices {
			o := d.Offers[s.Name]
			require.True(t, o.Granted != nil || o.Reason != "", "a denied slice has a reason")
			require.True(t, s.Granted == nil || o.Granted != nil, "a grant may shrink, but is not denied")
			total.Add(o.Granted)
			if by[s.Consumer] == nil {
				by[s.Consumer] = resources.Amounts{}
			}
			by[s.Consumer].Add(o.Granted)
		}
		require.True(t, sum.Scale(rules.Overcommit).Covers(total))
		for consumer, granted := range by {
			require.True(t, d.Entitled[consumer].Covers(granted), "%s: %v of %v", consumer, granted, d.Entitled[consumer])
		}
		// Offers stay the same while nothing changes, after the slices that were denied are granted.
		for range 4 {
			slices = after(slices, d.Offers)
			for i := range slices {
				slices[i].CoolingDown = false
			}
			d = Decide(sum, rules, slices)
		}
		again := Decide(sum, rules, after(slices, d.Offers))
		for name, offer := range d.Offers {
			require.Equal(t, offer.Granted, again.Offers[name].Granted)
		}
	})
}

func TestFairDecisionsAreFast(t *testing.T) {
	var slices []Slice
	shares := map[string]fairshare.Terms{}
	for c := range 200 {
		consumer := fmt.Sprint("c", c)
		shares[consumer] = fairshare.Terms{Weight: int64(1 + c%3)}
		slices = append(slices, ofConsumer(consumer, c, 100, nil))
	}
	began := time.Now()
	Decide(sumOf(5000), Rules{Overcommit: 1, Shares: shares}, slices)
	require.Less(t, time.Since(began), 2*time.Second)
}
