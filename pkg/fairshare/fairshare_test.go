package fairshare_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

const everything = math.MaxInt64

func of(cpu int64) resources.Amounts { return resources.Amounts{corev1.ResourceCPU: cpu} }

func claim(consumer string, weight, guaranteed, wants int64) fairshare.Claim {
	return fairshare.Claim{
		Terms: fairshare.Terms{Weight: weight, Guaranteed: of(guaranteed)}, Consumer: consumer, Wants: of(wants),
	}
}

func TestDivide(t *testing.T) {
	type claims []fairshare.Claim
	for name, c := range map[string]struct {
		total  int64
		claims claims
		want   map[string]int64
	}{
		"by weight": {
			600,
			claims{claim("a", 1, 0, everything), claim("b", 2, 0, everything), claim("c", 3, 0, everything)},
			map[string]int64{"a": 100, "b": 200, "c": 300},
		},
		"a weight of 0 is 1": {
			600,
			claims{claim("a", 0, 0, everything), claim("b", 2, 0, everything)},
			map[string]int64{"a": 200, "b": 400},
		},
		"the part that one does not want is the others'": {600, claims{
			claim("a", 1, 0, everything), claim("b", 2, 0, everything), claim("c", 3, 0, 30),
		}, map[string]int64{"a": 190, "b": 380, "c": 30}},
		"a guarantee comes first, the rest by weight": {
			600,
			claims{claim("a", 1, 300, everything), claim("b", 2, 0, everything)},
			map[string]int64{"a": 400, "b": 200},
		},
		"a guarantee that is not wanted is lent": {
			600,
			claims{claim("a", 1, 300, 100), claim("b", 2, 0, everything)},
			map[string]int64{"a": 100, "b": 500},
		},
		"guarantees beyond the total": {
			300,
			claims{claim("a", 1, 400, everything), claim("b", 9, 200, everything), claim("c", 1, 0, 5)},
			map[string]int64{"a": 200, "b": 100, "c": 0},
		},
		"guarantees beyond the total, one of which is not wanted": {
			300,
			claims{claim("a", 1, 400, 50), claim("b", 9, 200, everything), claim("c", 1, 200, 200)},
			map[string]int64{"a": 50, "b": 125, "c": 125},
		},
		"none": {
			0,
			claims{claim("a", 1, 400, everything)},
			map[string]int64{"a": 0},
		},
		"more than there is": {
			-5,
			claims{claim("a", 1, 0, 1)},
			map[string]int64{"a": 0},
		},
		"largest amounts": {
			everything,
			claims{claim("a", 1000, 0, everything), claim("b", 1000, everything, everything)},
			map[string]int64{"a": 0, "b": everything},
		},
		"the last unit is the heavier one's": {
			1,
			claims{claim("a", 1, 0, 5), claim("b", 1000, 0, 5)},
			map[string]int64{"a": 0, "b": 1},
		},
		"guarantees beyond all numbers": {
			15,
			claims{claim("a", 1, 9e18, 10), claim("b", 1, 10, 10)},
			map[string]int64{"a": 10, "b": 5},
		},
		"one unit is not split": {
			1,
			claims{claim("a", 1, 0, 1), claim("b", 1, 0, 1)},
			map[string]int64{"a": 1, "b": 0},
		},
		"all that is wanted is less": {
			100,
			claims{claim("a", 1, 0, 10), claim("b", 5, 0, 20)},
			map[string]int64{"a": 10, "b": 20},
		},
	} {
		got := map[string]int64{}
		for consumer, part := range fairshare.Divide(of(c.total), c.claims) {
			got[consumer] = part[corev1.ResourceCPU]
		}
		require.Equal(t, c.want, got, name)
	}
}

// Of two with equal rights to a last unit, the one that has it keeps it, whatever their names are.
func TestTheLastUnitStaysWhereItIs(t *testing.T) {
	for _, holder := range []string{"a", "b"} {
		claims := []fairshare.Claim{claim("a", 1, 0, 1), claim("b", 1, 0, 1)}
		for i := range claims {
			if claims[i].Consumer == holder {
				claims[i].Has = of(1)
			}
		}
		require.Equal(t, of(1), fairshare.Divide(of(1), claims)[holder])
	}
}

// Each resource is divided by itself: one with much memory loses no cpu.
func TestResourcesAreDividedEachByItself(t *testing.T) {
	wants := func(cpu, memory int64) resources.Amounts {
		return resources.Amounts{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, "not-granted": 5}
	}
	total := resources.Amounts{corev1.ResourceCPU: 100, corev1.ResourceMemory: 1000}
	got := fairshare.Divide(total, []fairshare.Claim{{Consumer: "a", Wants: wants(100, 100)}, {Consumer: "b", Wants: wants(20, 1000)}})
	require.Equal(t, map[string]resources.Amounts{
		"a": {corev1.ResourceCPU: 80, corev1.ResourceMemory: 100}, "b": {corev1.ResourceCPU: 20, corev1.ResourceMemory: 900},
	}, got)
}

func drawClaims(t *rapid.T) (total int64, claims []fairshare.Claim) {
	total = rapid.Int64Range(0, 1000).Draw(t, "total")
	for i := range rapid.IntRange(1, 6).Draw(t, "consumers") {
		claims = append(claims, claim(fmt.Sprintf("c%d", i), rapid.Int64Range(1, 5).Draw(t, "weight"),
			rapid.Int64Range(0, 400).Draw(t, "guaranteed"), rapid.Int64Range(0, 1500).Draw(t, "wants")))
	}
	return total, claims
}

func TestDivisionIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, claims := drawClaims(t)
		parts := fairshare.Divide(of(total), claims)
		sum, wanted, promised := int64(0), int64(0), int64(0)
		for _, c := range claims {
			sum += parts[c.Consumer][corev1.ResourceCPU]
			wanted += c.Wants[corev1.ResourceCPU]
			promised += min(c.Wants[corev1.ResourceCPU], c.Guaranteed[corev1.ResourceCPU])
		}
		require.Equal(t, min(total, wanted), sum, "everything that is wanted is given away")
		if promised > total {
			return
		}
		for _, c := range claims {
			has, wants := parts[c.Consumer][corev1.ResourceCPU], c.Wants[corev1.ResourceCPU]
			require.LessOrEqual(t, has, wants)
			require.GreaterOrEqual(t, has, min(wants, c.Guaranteed[corev1.ResourceCPU]))
			if has == wants {
				continue
			}
			for _, other := range claims {
				// Each division may round by a unit.
				rounded := int64(len(claims))
				promised := min(other.Wants[corev1.ResourceCPU], other.Guaranteed[corev1.ResourceCPU])
				beyond := parts[other.Consumer][corev1.ResourceCPU] - rounded - promised
				mine := has + rounded - min(wants, c.Guaranteed[corev1.ResourceCPU])
				require.LessOrEqual(t, beyond*c.Weight, mine*other.Weight, "%s has more beyond its guarantee than %s, which lacks it",
					other.Consumer, c.Consumer)
			}
		}
	})
}

// A consumer that asks for more, or less, than before does not get more of the amount that it wanted first.
func TestAskingForMoreGainsNothingThatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, claims := drawClaims(t)
		wants := claims[0].Wants[corev1.ResourceCPU]
		honest := fairshare.Divide(of(total), claims)["c0"][corev1.ResourceCPU]
		claims[0].Wants = of(rapid.Int64Range(0, 3000).Draw(t, "lie"))
		lie := fairshare.Divide(of(total), claims)["c0"][corev1.ResourceCPU]
		require.LessOrEqual(t, min(lie, wants), honest+int64(len(claims)), "each division may round by a unit")
	})
}

func TestTheOrderOfClaimsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, claims := drawClaims(t)
		want := fairshare.Divide(of(total), claims)
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(claims), func(i, k int) { claims[i], claims[k] = claims[k], claims[i] })
		require.Equal(t, want, fairshare.Divide(of(total), claims))
	})
}

func TestDominantShare(t *testing.T) {
	total := resources.Amounts{corev1.ResourceCPU: 100, corev1.ResourceMemory: 1000}
	used := resources.Amounts{corev1.ResourceCPU: 40, corev1.ResourceMemory: 100, "gone": 7}
	require.Equal(t, fairshare.Share{Value: 0.4, Resource: corev1.ResourceCPU}, fairshare.Of(fairshare.Terms{}, used, total))
	require.Equal(t, fairshare.Share{Value: 0.2, Resource: corev1.ResourceCPU}, fairshare.Of(fairshare.Terms{Weight: 2}, used, total))
	require.Equal(t, fairshare.Share{Value: 0.1, Resource: corev1.ResourceMemory},
		fairshare.Of(fairshare.Terms{Guaranteed: of(35)}, used, total))
	require.Equal(t, fairshare.Share{}, fairshare.Of(fairshare.Terms{Guaranteed: used}, used, total))
}

func TestUsageFollowsTheAmountsTaken(t *testing.T) {
	asked := 0
	u := fairshare.Usage{
		Total: of(100), Terms: map[string]fairshare.Terms{"b": {Weight: 2}},
		Used: func(consumer string) resources.Amounts {
			asked++
			if consumer == "a" {
				return of(10)
			}
			return nil
		},
	}
	require.Equal(t, 0.1, u.Share("a").Value)
	require.Zero(t, u.Share("b"))
	u.Take("a", corev1.ResourceCPU, 10)
	u.Take("b", corev1.ResourceCPU, 30)
	require.Equal(t, 0.2, u.Share("a").Value)
	require.Equal(t, 0.15, u.Share("b").Value)
	require.Equal(t, 2, asked)
}
