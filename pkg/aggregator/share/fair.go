package share

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// mostRounds bounds how often the sum is divided in one decision.
const mostRounds = 20

// decideShared decides about all slices, which are sorted by age, by shares. A slice that is denied takes nothing from the
// others: it is left out, and the sum divided again. The youngest is left out first, since without it an older one may be
// granted.
func (d *allocation) decideShared(all []Slice) Decision {
	out := map[types.NamespacedName]Offer{}
	for i := range all {
		if s := &all[i]; s.Granted == nil && !s.Gone && d.isImpossible(s) {
			out[s.Name] = Offer{}
		}
	}
	for round := 1; ; round++ {
		d.entitled = entitled(d.total, d.rules, all, out)
		offers := d.divide(all)
		before := len(out)
		for i := len(all) - 1; i >= 0; i-- {
			name := all[i].Name
			offer, decided := offers[name]
			first, isOut := out[name]
			switch {
			case !decided || offer.Granted != nil:
			case isOut && first.Reason != "":
				offers[name] = first
			case isOut || len(out) == before || round >= mostRounds:
				out[name] = offer
			}
		}
		if len(out) == before {
			return Decision{Offers: offers, Entitled: d.entitled}
		}
	}
}

// isImpossible reports whether a slice requests a resource of which its consumer can get none.
func (d *allocation) isImpossible(s *Slice) bool {
	for name, amount := range s.Requested {
		limit, limited := d.rules.Limits[s.Consumer][name]
		if amount > 0 && (d.total[name] == 0 || limited && limit == 0) {
			return true
		}
	}
	return false
}

// entitled returns the part of the total that each consumer with slices has a right to, by its id: as much as it requests,
// as far as its guarantee, its weight and its limit go (fairshare.Divide). The slices in out do not count.
func entitled(
	total resources.Amounts, rules Rules, requests []Slice, out map[types.NamespacedName]Offer,
) map[string]resources.Amounts {
	wants := map[string]resources.Amounts{}
	for i := range requests {
		s := &requests[i]
		if wants[s.Consumer] == nil {
			wants[s.Consumer] = resources.Amounts{}
		}
		wanted := s.Counted() // The limit of its consumer counts them.
		if _, is := out[s.Name]; !is {
			wanted = wanted.Max(s.wants(total))
		}
		wants[s.Consumer].Add(wanted)
	}
	claims := make([]fairshare.Claim, 0, len(wants))
	for consumer, wanted := range wants {
		wanted = wanted.Min(total)
		for name, limit := range rules.Limits[consumer] {
			wanted[name] = min(wanted[name], limit)
		}
		claims = append(claims, fairshare.Claim{Terms: rules.Shares[consumer], Consumer: consumer, Wants: wanted})
	}
	return fairshare.Divide(total, claims)
}

// wants returns the most that a slice may be granted.
func (s *Slice) wants(total resources.Amounts) resources.Amounts {
	switch {
	case s.Gone:
		return nil
	case s.Frozen || s.names() > maxResources:
		return s.Granted
	}
	wanted := make(resources.Amounts, len(total))
	for name, amount := range total {
		limit, _ := s.limit(name)
		wanted[name] = min(limit, amount)
	}
	return wanted
}

// narrowed returns the limits of consumers, narrowed to the part that each has a right to.
func narrowed(limits, entitled map[string]resources.Amounts) map[string]resources.Amounts {
	if entitled == nil {
		return limits
	}
	narrow := maps.Clone(entitled)
	for consumer, limit := range limits {
		narrow[consumer] = maps.Clone(limit)
		for name, right := range entitled[consumer] {
			if amount, limited := limit[name]; !limited || right < amount {
				narrow[consumer][name] = right
			}
		}
	}
	return narrow
}

// whole returns the total that an amount is a part of, for messages: the sum, the limit of the consumer, or its share.
func (d *allocation) whole(s *Slice, name corev1.ResourceName, limited bool) string {
	limit, hasLimit := d.rules.Limits[s.Consumer][name]
	right, shared := d.entitled[s.Consumer][name]
	switch {
	case !limited:
		return quantityText(name, d.total[name])
	case hasLimit && (!shared || limit <= right):
		return fmt.Sprintf("the limit %s of ConsumerCluster %s", quantityText(name, limit), s.Consumer)
	}
	terms := d.rules.Shares[s.Consumer]
	text := fmt.Sprintf("the share %s of consumer %s in %s (weight %d", quantityText(name, right), s.Consumer,
		quantityText(name, d.total[name]), max(terms.Weight, 1))
	if guaranteed := terms.Guaranteed[name]; guaranteed > 0 {
		text += ", guaranteed " + quantityText(name, guaranteed)
	}
	return text + ")"
}

// Reclaimed returns, by consumer, the amounts that its pods use beyond its grants and that others have a right to and
// lack. Consumers that use most beyond their grants, in proportion to the total, are first. granted has the sum of the
// offers to each consumer, used the requests of its pods.
func Reclaimed(total resources.Amounts, entitled, granted, used map[string]resources.Amounts) map[string]resources.Amounts {
	lacking := resources.Amounts{}
	for consumer, right := range entitled {
		lacking.Add(right.Excess(granted[consumer]))
	}
	excess := make(map[string]resources.Amounts, len(used))
	share := func(consumer string) float64 { return fairshare.Of(fairshare.Terms{}, excess[consumer], total).Value }
	for consumer, amounts := range used {
		excess[consumer] = amounts.Excess(granted[consumer])
	}
	order := slices.SortedFunc(maps.Keys(excess), func(x, y string) int {
		return cmp.Or(cmp.Compare(share(y), share(x)), strings.Compare(x, y))
	})
	reclaimed := map[string]resources.Amounts{}
	for _, consumer := range order {
		amounts := excess[consumer].Min(lacking).Excess(nil) // Only amounts above zero.
		lacking.Sub(amounts)
		if len(amounts) > 0 {
			reclaimed[consumer] = amounts
		}
	}
	return reclaimed
}
