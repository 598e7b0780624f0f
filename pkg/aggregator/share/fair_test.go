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
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
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
	require.Equal(t, 30*core, rules.Lacking(d.Entitled, granted, nil)[corev1.ResourceCPU])

	// Its pods use everything, so that the other one is granted nothing yet. Its claim counts all the same.
	slices[0].Running = cores(60)
	for range 3 {
		d = Decide(sumOf(60), rules, slices)
		require.Equal(t, map[string]int64{"c1": 20, "c2": 0}, coresOf(slices, d))
		require.Equal(t, 40*core, d.Entitled["c2"][corev1.ResourceCPU])
		slices = after(slices, d.Offers)
	}
	slices[0].Running = cores(20)
	require.Equal(t, map[string]int64{"c1": 20, "c2": 40}, coresOf(slices, Decide(sumOf(60), rules, slices)))
}

func TestOnlyTheLackingPartIsReclaimed(t *testing.T) {
	cpu := func(n int64) resources.Amounts { return resources.Amounts{corev1.ResourceCPU: n} }
	of := func(consumer string) scheduler.Account { return scheduler.Account{Consumer: consumer, Creator: "user"} }
	rules := Rules{Hysteresis: 0.05}
	entitled := map[string]resources.Amounts{"lacks": cpu(130), "most": cpu(20)}
	granted := map[string]resources.Amounts{"lacks": cpu(100), "most": cpu(20)}
	require.Equal(t, cpu(30), rules.Lacking(entitled, granted, nil))
	require.Equal(t, cpu(23), rules.Lacking(entitled, granted, cpu(7)), "7 are free")
	require.Empty(t, rules.Lacking(entitled, granted, cpu(30)))
	granted["lacks"] = cpu(125)
	require.Empty(t, rules.Lacking(entitled, granted, nil), "a grant does not grow by so little")
	require.Empty(t, rules.Lacking(nil, granted, nil))

	excess := []Excess{{of("less"), cpu(10)}, {of("most"), cpu(20)}, {of("within"), nil}}
	require.Equal(t, map[scheduler.Account]resources.Amounts{of("most"): cpu(20), of("less"): cpu(5)}, Reclaimed(cpu(100), cpu(25), excess))
	require.Empty(t, Reclaimed(cpu(100), nil, excess))
}

// Consumer c2 makes many slices that cannot be granted together, younger than the one of c1.
func TestManyDeniedSlicesTakeNothingFromAnOlderOne(t *testing.T) {
	total := resources.Amounts{corev1.ResourceCPU: 10 * core, corev1.ResourceMemory: 100, corev1.ResourcePods: 100, gpu: 1}
	older := ofConsumer("c1", 1, 1, nil)
	older.Requested[gpu] = 1
	all := []Slice{older, ofConsumer("c2", 2, 10, cores(9))}
	for i := range 50 {
		s := ofConsumer("c2", 10+i, 1, nil)
		s.Requested[gpu] = 1
		all = append(all, s)
	}
	d := Decide(total, Rules{Overcommit: 1, Shares: weights(nil)}, all)
	gpus := int64(0)
	for i := range all {
		gpus += d.Offers[all[i].Name].Granted[gpu]
	}
	require.EqualValues(t, 1, gpus)
}

// When the pods beyond the grants have left, each consumer has its guarantee, or its request if that is smaller.
func TestGuaranteesAreMet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(0, 100).Draw(t, "total")
		rules, all, promised := Rules{Overcommit: 1, Shares: map[string]fairshare.Terms{}}, []Slice(nil), int64(0)
		for i := range rapid.IntRange(1, 5).Draw(t, "consumers") {
			s := ofConsumer(fmt.Sprint("c", i), i, rapid.Int64Range(1, 100).Draw(t, "requested"), nil)
			if rapid.Bool().Draw(t, "has a grant") {
				s.Granted = cores(rapid.Int64Range(0, 100).Draw(t, "granted"))
			}
			guaranteed := rapid.Int64Range(0, max(0, total-promised)).Draw(t, "guaranteed")
			promised += guaranteed
			rules.Shares[s.Consumer] = fairshare.Terms{
				Weight: rapid.Int64Range(1, 4).Draw(t, "weight"), Guaranteed: resources.Amounts{corev1.ResourceCPU: guaranteed * core},
			}
			all = append(all, s)
		}
		for range 3 {
			all = after(all, Decide(sumOf(total), rules, all).Offers)
		}
		for _, s := range all {
			least := min(s.Requested[corev1.ResourceCPU], rules.Shares[s.Consumer].Guaranteed[corev1.ResourceCPU])
			require.GreaterOrEqual(t, s.Granted[corev1.ResourceCPU], least, s.Consumer)
		}
	})
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
