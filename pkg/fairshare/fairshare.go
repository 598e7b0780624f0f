// Package fairshare divides resources among consumers by guarantee and weight, and orders consumers by their dominant
// share (DRF, as Kueue defines it for the queues of a cohort). It is pure.
package fairshare

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Terms are a consumer's right to resources. The zero Terms are a consumer without a ConsumerCluster.
type Terms struct {
	// Weight is at least 1; a smaller one counts as 1.
	Weight int64
	// Guaranteed is granted before the rest is divided.
	Guaranteed resources.Amounts
}

// TermsOf returns the terms in the spec of a ConsumerCluster.
func TermsOf(spec *v1alpha1.ConsumerClusterSpec) Terms {
	return Terms{Weight: int64(ptr.Deref(spec.Weight, v1alpha1.DefaultWeight)), Guaranteed: resources.RoundDown(spec.Guaranteed)}
}

func (t Terms) weight() int64 { return max(t.Weight, v1alpha1.DefaultWeight) }

// Claim is a consumer that wants resources.
type Claim struct {
	Terms

	Consumer string
	// Wants are the amounts it would accept at most, Has those that it has now: of two that would get the same last unit,
	// the one that has more keeps it.
	Wants, Has resources.Amounts
}

// Divide divides each resource of total among the claims, and returns the part of each consumer, with an amount for each
// resource of total. There is one claim for each consumer; their order does not matter.
//
// Each gets its guarantee, as far as it wants it. If the guarantees do not fit into the total, it is divided
// in proportion to them. The rest is divided by weight: no part beyond the guarantees can grow by one unit
// without a smaller one, in proportion to the weights, getting less (weighted max-min fairness). So no consumer has a
// larger dominant share beyond its guarantee than another one that still lacks that resource. Everything that is wanted
// is given away, and no consumer gains by dividing its claim.
func Divide(total resources.Amounts, claims []Claim) map[string]resources.Amounts {
	parts := make(map[string]resources.Amounts, len(claims))
	for i := range claims {
		parts[claims[i].Consumer] = make(resources.Amounts, len(total))
	}
	for name, amount := range total {
		for i, part := range divide(max(amount, 0), name, claims) {
			parts[claims[i].Consumer][name] = part
		}
	}
	return parts
}

// divide returns the part of each claim in one resource.
func divide(total int64, name corev1.ResourceName, claims []Claim) []int64 {
	guaranteed, beyond := make([]want, len(claims)), make([]want, len(claims))
	promised := int64(0)
	for i := range claims {
		c := &claims[i]
		wants, weight := max(0, c.Wants[name]), max(0, c.Guaranteed[name])
		guaranteed[i] = want{amount: min(wants, weight), weight: weight, has: c.Has[name], of: c.Consumer}
		beyond[i] = want{amount: wants - guaranteed[i].amount, weight: c.weight(), has: c.Has[name], of: c.Consumer}
		promised = resources.Sum(promised, guaranteed[i].amount)
	}
	if promised > total {
		return fill(total, guaranteed)
	}
	parts := fill(total-promised, beyond)
	for i := range parts {
		parts[i] += guaranteed[i].amount
	}
	return parts
}

// want is an amount of one resource that a consumer may get, its weight, and how much the consumer has.
type want struct {
	amount, weight, has int64
	of                  string
}

// fill divides a total among the wants by weight: everything, unless less is wanted. Those that lack least for their
// weight are satisfied, and leave the rest to the others, which get equal parts for their weights. A unit is not split: the
// units that are left go to the largest fractions, of equal ones to a consumer that has the resource already.
func fill(total int64, wants []want) []int64 {
	parts, order := make([]int64, len(wants)), make([]int, 0, len(wants))
	weight, weights := weightsOf(wants), int64(0)
	for i := range wants {
		if wants[i].amount > 0 {
			order = append(order, i)
			weights += weight[i]
		}
	}
	slices.SortFunc(order, func(x, y int) int {
		return cmp.Or(compareProducts(wants[x].amount, weight[y], wants[y].amount, weight[x]), strings.Compare(wants[x].of, wants[y].of))
	})
	for len(order) > 0 && compareProducts(wants[order[0]].amount, weights, total, weight[order[0]]) <= 0 {
		i := order[0]
		parts[i], order = wants[i].amount, order[1:]
		total -= parts[i]
		weights -= weight[i]
	}
	left, fractions := total, make([]int64, len(wants))
	for _, i := range order {
		parts[i], fractions[i] = muldiv(total, weight[i], weights)
		left -= parts[i]
	}
	slices.SortFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(fractions[y], fractions[x]), cmp.Compare(wants[y].has, wants[x].has),
			strings.Compare(wants[x].of, wants[y].of))
	})
	for _, i := range order[:min(left, int64(len(order)))] {
		parts[i]++
	}
	return parts
}

// weightsOf returns the weights, which are at least 1, divided by a power of two so that their sum does not overflow.
func weightsOf(wants []want) []int64 {
	weights, largest := make([]int64, len(wants)), int64(1)
	for i := range wants {
		largest = max(largest, wants[i].weight)
	}
	const bitsOfSum = 62
	shift := max(0, bits.Len64(uint64(largest))+bits.Len(uint(len(wants)))-bitsOfSum)
	for i := range wants {
		weights[i] = max(1, wants[i].weight>>shift)
	}
	return weights
}

// muldiv returns the quotient and the remainder of a·b/c, of amounts that are not negative and with b ≤ c.
func muldiv(a, b, c int64) (quotient, remainder int64) {
	if c == 0 {
		return 0, 0
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(high, low, uint64(c))
	return int64(q), int64(r)
}

// compareProducts compares a·b with c·d, of amounts that are not negative.
func compareProducts(a, b, c, d int64) int {
	high1, low1 := bits.Mul64(uint64(a), uint64(b))
	high2, low2 := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(high1, high2), cmp.Compare(low1, low2))
}

// Share is a consumer's dominant share.
type Share struct {
	// Value is the largest, over the resources, of the amount used beyond the guarantee divided by the total, and divided
	// by the weight. It is 0 if only guaranteed resources are used.
	Value float64
	// Resource is the dominant resource; "" if Value is 0.
	Resource corev1.ResourceName
}

// Of returns the dominant share of a consumer that uses resources. Resources of which there are none do not count.
func Of(terms Terms, used, total resources.Amounts) Share {
	share := Share{}
	for name, amount := range used {
		all, beyond := total[name], amount-terms.Guaranteed[name]
		if beyond <= 0 || all <= 0 {
			continue
		}
		value := float64(beyond) / float64(all) / float64(terms.weight())
		if value > share.Value || value == share.Value && name < share.Resource {
			share = Share{Value: value, Resource: name}
		}
	}
	return share
}

// Usage has the amounts that consumers use of a total.
type Usage struct {
	// Total is divided.
	Total resources.Amounts
	// Terms are the consumers' terms; one without an entry has the zero Terms.
	Terms map[string]Terms
	// Used returns the amounts that a consumer uses, which the Usage may change. It is asked once for each.
	Used func(consumer string) resources.Amounts

	known map[string]*usage
}

type usage struct {
	used  resources.Amounts
	share Share
	// stale means that used has changed since share was computed.
	stale bool
}

func (u *Usage) of(consumer string) *usage {
	known := u.known[consumer]
	if known == nil {
		known = &usage{used: u.Used(consumer), stale: true}
		if known.used == nil {
			known.used = resources.Amounts{}
		}
		if u.known == nil {
			u.known = map[string]*usage{}
		}
		u.known[consumer] = known
	}
	return known
}

// Share returns the dominant share of a consumer.
func (u *Usage) Share(consumer string) Share {
	known := u.of(consumer)
	if known.stale {
		known.share, known.stale = Of(u.Terms[consumer], known.used, u.Total), false
	}
	return known.share
}

// Take adds an amount to those that a consumer uses.
func (u *Usage) Take(consumer string, name corev1.ResourceName, amount int64) {
	known := u.of(consumer)
	known.used[name] = resources.Sum(known.used[name], amount)
	known.stale = true
}
