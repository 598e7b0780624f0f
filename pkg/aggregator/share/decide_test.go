package share

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

const (
	core = int64(1000)
	gpu  = corev1.ResourceName("nvidia.com/gpu")
)

var dayOne = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// cores are amounts of which only cpu matters: there is enough memory and there are enough pods.
func cores(n int64) resources.Amounts {
	return resources.Amounts{corev1.ResourceCPU: n * core, corev1.ResourceMemory: 1, corev1.ResourcePods: 1}
}

func sumOf(n int64) resources.Amounts {
	return resources.Amounts{corev1.ResourceCPU: n * core, corev1.ResourceMemory: 100, corev1.ResourcePods: 100}
}

// slice is number n in age.
func slice(n int, requested, granted resources.Amounts) Slice {
	return Slice{
		Name: types.NamespacedName{Namespace: "liqo-tenant-c1", Name: fmt.Sprint("s", n)}, Consumer: "c1",
		Created: dayOne.Add(time.Duration(n) * time.Hour), Requested: requested, Granted: granted,
	}
}

func TestDecide(t *testing.T) {
	coolingDown, frozen := slice(1, cores(10), cores(4)), slice(1, cores(10), cores(4))
	coolingDown.CoolingDown, frozen.Frozen = true, true
	for name, tc := range map[string]struct {
		sum    int64
		slices []Slice
		// want are cores by slice, -1 for a denial; because is in the reason of the last slice.
		want    []int64
		because string
	}{
		"a request that fits is granted": {sum: 48, slices: []Slice{slice(1, cores(40), nil)}, want: []int64{40}},
		"what is not there is denied": {
			sum: 48, slices: []Slice{slice(1, cores(36), cores(36)), slice(2, cores(40), nil)},
			want: []int64{36, -1}, because: "cpu: 40 requested, 12 left of 48",
		},
		"a younger one that fits is not held up": {
			sum: 48, slices: []Slice{slice(1, cores(50), nil), slice(2, cores(8), nil)}, want: []int64{-1, 8},
		},
		"of two that do not both fit, the older": {
			sum: 48, slices: []Slice{slice(2, cores(30), nil), slice(1, cores(30), nil)}, want: []int64{-1, 30},
		},
		"a grant comes before an older request": {
			sum: 48, slices: []Slice{slice(1, cores(30), nil), slice(2, cores(30), cores(30))}, want: []int64{-1, 30},
		},
		"a smaller sum takes from the youngest": {
			sum: 20, slices: []Slice{slice(1, cores(15), cores(15)), slice(2, cores(15), cores(15))},
			want: []int64{15, 5}, because: "cpu: 15 requested, 5 granted of 20",
		},
		"but a grant is never denied again": {
			sum: 10, slices: []Slice{slice(1, cores(15), cores(15)), slice(2, cores(15), cores(15))},
			want: []int64{10, 0}, because: "cpu: 15 requested, 0 granted of 10",
		},
		"a larger sum is offered to who got less": {
			sum: 30, slices: []Slice{slice(1, cores(15), cores(15)), slice(2, cores(15), cores(5))}, want: []int64{15, 15},
		},
		"in part, if need be": {
			sum: 25, slices: []Slice{slice(1, cores(15), cores(15)), slice(2, cores(15), cores(5))},
			want: []int64{15, 10}, because: "cpu: 15 requested, 10 granted of 25",
		},
		"not for hardly more": {
			sum: 61, slices: []Slice{slice(1, cores(100), cores(60))}, want: []int64{60}, because: "cpu: 100 requested, 60 granted of 61",
		},
		"unless it reaches the request": {sum: 61, slices: []Slice{slice(1, cores(61), cores(60))}, want: []int64{61}},
		"nor so soon":                   {sum: 48, slices: []Slice{coolingDown}, want: []int64{4}},
		"nor to one that is frozen":     {sum: 48, slices: []Slice{frozen}, want: []int64{4}},
		"a smaller request releases the rest": {
			sum: 48, slices: []Slice{slice(1, cores(8), cores(40)), slice(2, cores(40), nil)}, want: []int64{8, 40},
		},
		"a larger request gets what is left": {
			sum: 48, slices: []Slice{slice(1, cores(99), cores(8)), slice(2, cores(8), cores(8))}, want: []int64{40, 8},
		},
		"who names nothing gets all that is left": {
			sum: 48, slices: []Slice{slice(1, cores(8), cores(8)), slice(2, nil, nil)}, want: []int64{8, 40},
		},
		"and grows with it": {
			sum: 60, slices: []Slice{slice(1, cores(8), cores(8)), slice(2, nil, cores(40))}, want: []int64{8, 52},
		},
		"when nothing is left it is denied": {
			sum: 8, slices: []Slice{slice(1, cores(8), cores(8)), slice(2, nil, nil)},
			want: []int64{8, -1}, because: "cpu: nothing left of 8",
		},
		"without providers everybody is": {
			sum: 0, slices: []Slice{slice(1, nil, nil)}, want: []int64{-1}, because: "cpu: the providers grant none",
		},
		"a resource that no provider has": {
			sum: 48, slices: []Slice{slice(1, resources.Amounts{gpu: 1}, nil)},
			want: []int64{-1}, because: "nvidia.com/gpu: 1 requested, 0 left of 0",
		},
		"a negative amount is no gift to the others": {
			sum: 8, slices: []Slice{slice(1, cores(-8), nil), slice(2, cores(9), nil)},
			want: []int64{0, -1}, because: "cpu: 9 requested, 8 left of 8",
		},
		"one that is frozen without a grant gets none": {
			sum: 8, slices: []Slice{{Name: types.NamespacedName{Name: "x"}, Frozen: true}}, want: []int64{-1}, because: "no new slices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			offers := Decide(sumOf(tc.sum), Rules{Overcommit: 1, Hysteresis: 0.05}, tc.slices).Offers
			for i, want := range tc.want {
				offer := offers[tc.slices[i].Name]
				if want < 0 {
					require.Nil(t, offer.Granted)
					require.NotEmpty(t, offer.Reason)
					continue
				}
				require.NotNil(t, offer.Granted, offer.Reason)
				require.Equal(t, want*core, offer.Granted[corev1.ResourceCPU])
			}
			require.Contains(t, offers[tc.slices[len(tc.slices)-1].Name].Reason, tc.because)
		})
	}
}

func TestOvercommit(t *testing.T) {
	offers := Decide(sumOf(10), Rules{Overcommit: 1.5}, []Slice{slice(1, nil, nil)}).Offers
	for _, o := range offers {
		require.Equal(t, 15*core, o.Granted[corev1.ResourceCPU])
	}
}

func TestExtendedResourcesMustBeRequested(t *testing.T) {
	sum := sumOf(10)
	sum[gpu] = 4
	offers := Decide(sum, Rules{Overcommit: 1}, []Slice{slice(1, cores(1), nil), slice(2, resources.Amounts{
		corev1.ResourceCPU: core, corev1.ResourceMemory: 1, corev1.ResourcePods: 1, gpu: 3,
	}, nil)}).Offers
	require.NotContains(t, offers[slice(1, nil, nil).Name].Granted, gpu)
	require.Equal(t, int64(3), offers[slice(2, nil, nil).Name].Granted[gpu])
}

// many is an resources.Amounts that names so many resources, each by so many bytes.
func many(count, length int) resources.Amounts {
	a := cores(1)
	for i := len(a); i < count; i++ {
		a[corev1.ResourceName(fmt.Sprintf("%0*d", length, i))] = 1
	}
	return a
}

func TestMessagesForManyResourcesAreShort(t *testing.T) {
	for name, tc := range map[string]struct {
		requested, granted resources.Amounts
		// want is the CPU granted, -1 for a denial.
		want    int64
		because string
	}{
		"as many as there may be": {many(maxResources-1, 300), nil, -1, "; and 186 more"},
		"one more, with ephemeral storage": {
			many(maxResources, 300), nil, -1, "201 resources including the defaults, at most 200 allowed",
		},
		"very many":                {many(50_000, 10), nil, -1, "50001 resources including the defaults, at most 200 allowed"},
		"very many, after a grant": {many(50_000, 10), cores(3), 1, "50001 resources including the defaults, at most 200 allowed"},
		"a grant of very many": {
			many(50_000, 10), many(50_000, 10), 1, "50001 resources including the defaults, at most 200 allowed",
		},
		"as many as there may be, after it": {many(maxResources-1, 300), cores(1), 1, "; and 186 more"},
	} {
		t.Run(name, func(t *testing.T) {
			offer := Decide(sumOf(8), Rules{Overcommit: 1}, []Slice{slice(1, tc.requested, tc.granted)}).Offers[slice(1, nil, nil).Name]
			require.Contains(t, offer.Reason, tc.because)
			require.Less(t, len(offer.Reason), 2000)
			require.LessOrEqual(t, len(offer.Granted), maxResources)
			require.Less(t, len(Text(offer.Granted)), 2000)
			if tc.want < 0 {
				require.Nil(t, offer.Granted)
				return
			}
			require.Equal(t, tc.want*core, offer.Granted[corev1.ResourceCPU])
		})
	}
}

func TestAmountsAreListedForPeople(t *testing.T) {
	require.Equal(t, "1500m cpu, 2Gi memory, 3 nvidia.com/gpu",
		Text(resources.Amounts{gpu: 3, corev1.ResourceMemory: 2 << 30, corev1.ResourceCPU: 1500}))
}

var resourceNames = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, gpu,
}

func amounts(t *rapid.T, label string, atMost int64) resources.Amounts {
	a := resources.Amounts{}
	for _, name := range resourceNames {
		if rapid.Bool().Draw(t, label+" names "+string(name)) {
			a[name] = rapid.Int64Range(0, atMost).Draw(t, label+" of "+string(name))
		}
	}
	return a
}

// situation is any sum, any rules and any slices, whose grants may be more than there is.
func situation(t *rapid.T) (resources.Amounts, Rules, []Slice) {
	rules := Rules{
		Overcommit: rapid.Float64Range(0.1, 3).Draw(t, "overcommit"), Hysteresis: rapid.Float64Range(0, 0.5).Draw(t, "hysteresis"),
	}
	slices := make([]Slice, rapid.IntRange(0, 6).Draw(t, "slices"))
	for i := range slices {
		slices[i] = slice(i, amounts(t, "requested", 60), nil)
		slices[i].Created = dayOne.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Hour)
		if rapid.Bool().Draw(t, "has something") {
			slices[i].Granted = amounts(t, "granted", 60)
			slices[i].Frozen, slices[i].CoolingDown = rapid.Bool().Draw(t, "closed"), rapid.Bool().Draw(t, "resting")
		}
	}
	return amounts(t, "sum", 100), rules, slices
}

// after is the situation once the offers are written.
func after(slices []Slice, offers map[types.NamespacedName]Offer) []Slice {
	next := make([]Slice, len(slices))
	for i, s := range slices {
		s.Granted = offers[s.Name].Granted
		next[i] = s
	}
	return next
}

func TestNeverMoreThanThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, rules, slices := situation(t)
		total := resources.Amounts{}
		offers := Decide(sum, rules, slices).Offers
		require.Len(t, offers, len(slices))
		for _, s := range slices {
			o := offers[s.Name]
			require.True(t, o.Granted != nil || o.Reason != "", "a denied slice has a reason")
			require.True(t, s.Granted == nil || o.Granted != nil, "a grant may shrink, but is not denied")
			for name, amount := range o.Granted {
				require.GreaterOrEqual(t, amount, int64(0))
				if requested, named := s.Requested[name]; named {
					require.LessOrEqual(t, amount, requested)
				}
				if s.Frozen || s.CoolingDown {
					require.LessOrEqual(t, amount, s.Granted[name])
				}
			}
			total.Add(o.Granted)
		}
		for name, amount := range total {
			require.LessOrEqual(t, float64(amount), float64(sum[name])*rules.Overcommit, name)
		}
	})
}

func TestTheOrderOfInputIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, rules, slices := situation(t)
		want := Decide(sum, rules, slices).Offers
		rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(slices), func(i, j int) {
			slices[i], slices[j] = slices[j], slices[i]
		})
		require.Equal(t, want, Decide(sum, rules, slices).Offers)
	})
}

func TestALargerSumTakesNothingAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, rules, slices := situation(t)
		before := Decide(sum, rules, slices).Offers
		sum.Add(amounts(t, "more", 50))
		for name, offer := range Decide(sum, rules, after(slices, before)).Offers {
			if before[name].Granted == nil {
				continue
			}
			for resource, amount := range before[name].Granted {
				require.GreaterOrEqual(t, offer.Granted[resource], amount)
			}
		}
	})
}

// Offers stay the same while nothing changes.
func TestOffersSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, rules, slices := situation(t)
		for i := range slices {
			slices[i].CoolingDown = false
		}
		slices = after(slices, Decide(sum, rules, slices).Offers)
		for range len(slices) { // A growth below the hysteresis may exceed it after a release.
			slices = after(slices, Decide(sum, rules, slices).Offers)
		}
		settled := Decide(sum, rules, slices).Offers
		require.Equal(t, settled, Decide(sum, rules, after(slices, settled)).Offers)
	})
}

// limited are rules that limit consumer c1 to so many cores.
func limited(cpus int64) Rules {
	return Rules{Overcommit: 1, Hysteresis: 0.05, Limits: map[string]resources.Amounts{"c1": {corev1.ResourceCPU: cpus * core}}}
}

func TestLimitsOfAConsumer(t *testing.T) {
	of := func(consumer string, s Slice) Slice { s.Consumer = consumer; return s }
	for name, tc := range map[string]struct {
		limit  int64
		slices []Slice
		// want are cores by slice, -1 for a denial; because is in the reason of the last slice.
		want    []int64
		because string
	}{
		"a request below the limit is granted": {10, []Slice{slice(1, cores(10), nil)}, []int64{10}, ""},
		"one above it is denied": {
			10, []Slice{slice(1, cores(11), nil)}, []int64{-1}, "cpu: 11 requested, 10 left of the limit 10 of ConsumerCluster c1",
		},
		"all slices together count": {
			10, []Slice{slice(1, cores(8), nil), slice(2, cores(4), nil)}, []int64{8, -1}, "cpu: 4 requested, 2 left of the limit 10",
		},
		"those of others do not": {
			10, []Slice{slice(1, cores(8), nil), of("c2", slice(2, cores(40), nil))}, []int64{8, 40}, "",
		},
		"who names nothing gets what is left": {10, []Slice{slice(1, cores(8), nil), slice(2, nil, nil)}, []int64{8, 2}, ""},
		"and nothing when that is nothing": {
			10,
			[]Slice{slice(1, cores(10), nil), slice(2, nil, nil)},
			[]int64{10, -1},
			"cpu: nothing left of the limit 10 of ConsumerCluster c1",
		},
		"a larger request gets it in part": {
			10,
			[]Slice{slice(1, cores(4), cores(4)), slice(2, cores(9), cores(4))},
			[]int64{4, 6},
			"cpu: 9 requested, 6 granted of the limit 10 of ConsumerCluster c1",
		},
		"a lower limit takes from the youngest": {
			10,
			[]Slice{slice(1, cores(8), cores(8)), slice(2, cores(8), cores(8))},
			[]int64{8, 2},
			"cpu: 8 requested, 2 granted of the limit 10",
		},
		"and others get what that releases": {
			10, []Slice{slice(1, cores(60), cores(60)), of("c2", slice(2, cores(50), nil))}, []int64{10, 50}, "",
		},
		"a limit above the sum changes nothing": {99, []Slice{slice(1, cores(70), nil)}, []int64{-1}, "cpu: 70 requested, 60 left of 60"},
		"none at all": {
			0, []Slice{slice(1, cores(1), nil)}, []int64{-1}, "0 left of the limit 0 of ConsumerCluster c1",
		},
		"a resource without a limit is shared": {
			10,
			[]Slice{slice(1, resources.Amounts{corev1.ResourceCPU: core, corev1.ResourceMemory: 101}, nil)},
			[]int64{-1},
			"memory: 101 requested, 100 left of 100",
		},
		"a slice that gets smaller makes room":   {10, []Slice{slice(1, cores(2), cores(10)), slice(2, cores(8), nil)}, []int64{2, 8}, ""},
		"a consumer of which nothing is decided": {10, []Slice{of("c2", slice(1, cores(60), nil))}, []int64{60}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			offers := Decide(sumOf(60), limited(tc.limit), tc.slices).Offers
			for i, want := range tc.want {
				offer := offers[tc.slices[i].Name]
				if want < 0 {
					require.Nil(t, offer.Granted)
					continue
				}
				require.NotNil(t, offer.Granted, offer.Reason)
				require.Equal(t, want*core, offer.Granted[corev1.ResourceCPU])
			}
			require.Contains(t, offers[tc.slices[len(tc.slices)-1].Name].Reason, tc.because)
		})
	}
}

func TestPodsOfAnOlderSliceWithoutAGrantCountBeforeYoungerGrants(t *testing.T) {
	older, younger := slice(1, cores(4), nil), slice(2, cores(8), cores(8))
	older.Running = cores(6)
	offers := Decide(sumOf(60), limited(10), []Slice{younger, older}).Offers
	require.Equal(t, 4*core, offers[younger.Name].Granted[corev1.ResourceCPU])
}

func TestNoConsumerHasMoreThanItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, rules, slices := situation(t)
		rules.Limits = map[string]resources.Amounts{"c1": amounts(t, "limit", 80)}
		for i := range slices {
			slices[i].Consumer = rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "consumer")
			slices[i].Running, slices[i].Former = amounts(t, "running", 20), amounts(t, "former", 20)
			if slices[i].Granted == nil {
				slices[i].Gone = rapid.Bool().Draw(t, "gone")
			}
		}
		offers := Decide(sum, rules, slices).Offers
		limited, used := resources.Amounts{}, resources.Amounts{}
		for _, s := range slices {
			granted := offers[s.Name].Granted
			if s.Consumer == "c1" {
				limited.Add(granted.Max(s.Running).Max(s.Former))
			}
			used.Add(granted.Max(s.Running))
			require.True(t, s.Granted == nil || granted != nil, "a grant may shrink, but is not denied")
			require.False(t, s.Gone && granted != nil)
		}
		for _, s := range slices {
			for name := range offers[s.Name].Granted.Excess(s.Granted.Max(s.Running)) {
				require.LessOrEqual(t, float64(used[name]), float64(sum[name])*rules.Overcommit, "%s grows beyond the sum", name)
			}
			for name := range offers[s.Name].Granted.Excess(s.Granted.Max(s.Running).Max(s.Former)) {
				if limit, has := rules.Limits[s.Consumer][name]; has {
					require.LessOrEqual(t, limited[name], limit, "%s grows beyond the limit", name)
				}
			}
		}
		alone := resources.Amounts{}
		for _, s := range slices {
			alone.Add(offers[s.Name].Granted)
		}
		for name, amount := range alone {
			require.LessOrEqual(t, float64(amount), float64(sum[name])*rules.Overcommit, name)
		}
		settled := Decide(sum, rules, after(slices, offers)).Offers
		for name, offer := range offers {
			for resource, amount := range offer.Granted {
				require.GreaterOrEqual(t, settled[name].Granted[resource], amount, "nothing is taken away again")
			}
		}
	})
}
