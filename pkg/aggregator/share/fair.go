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
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// decideShared decides about all slices, which are sorted by age, by shares. A slice that would be denied even if all pods
// beyond the grants had left takes nothing from the others: it is left out, and the sum divided again. The youngest is left
// out first, since without it an older one may be granted, and with it all denied ones of its consumer: each round leaves
// out a consumer, however many slices it has.
func (d *allocation) decideShared(all []Slice) Decision {
	out := map[types.NamespacedName]bool{}
	settled := slices.Clone(all)
	for i := range settled {
		s := &settled[i]
		out[s.Name] = s.Granted == nil && !s.Gone && d.isImpossible(s)
		s.Running, s.Former = nil, nil
	}
	for found := true; found; {
		d.entitled = entitled(d.total, d.rules, all, out)
		offers, consumer := d.divide(settled), ""
		found = false
		for i := len(all) - 1; i >= 0; i-- {
			s := &all[i]
			offer, decided := offers[s.Name]
			if decided && offer.Granted == nil && !out[s.Name] && (!found || s.Consumer == consumer) {
				out[s.Name], consumer, found = true, s.Consumer, true
			}
		}
	}
	return Decision{Offers: d.divide(all), Entitled: d.entitled}
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
	total resources.Amounts, rules Rules, requests []Slice, out map[types.NamespacedName]bool,
) map[string]resources.Amounts {
	wants, has := map[string]resources.Amounts{}, map[string]resources.Amounts{}
	for i := range requests {
		s := &requests[i]
		if wants[s.Consumer] == nil {
			wants[s.Consumer], has[s.Consumer] = resources.Amounts{}, resources.Amounts{}
		}
		has[s.Consumer].Add(s.Granted)
		wanted := s.Counted() // The limit of its consumer counts them.
		if !out[s.Name] {
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
		claims = append(claims, fairshare.Claim{Terms: rules.Shares[consumer], Consumer: consumer, Wants: wanted, Has: has[consumer]})
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

// Excess is the part of a slice's use that is beyond its grant and can leave.
type Excess struct {
	// Account identifies the user of the slice.
	Account scheduler.Account
	Amounts resources.Amounts
}

// Lacking returns the amounts that consumers have a right to and lack, beyond the free part. granted has the
// sum of the offers to each consumer. A part by which no grant would grow (Rules.Hysteresis) is not lacking.
func (r *Rules) Lacking(entitled, granted map[string]resources.Amounts, free resources.Amounts) resources.Amounts {
	lacking := resources.Amounts{}
	for consumer, right := range entitled {
		for name, more := range right.Excess(granted[consumer]) {
			if has := granted[consumer][name]; float64(more) > r.Hysteresis*float64(has) {
				lacking[name] = resources.Sum(lacking[name], more)
			}
		}
	}
	return lacking.Excess(free)
}

// Reclaimed returns, by account, the parts of the excess that others lack. Accounts with the largest excess, in proportion to
// the total, are first.
func Reclaimed(total, lacking resources.Amounts, excess []Excess) map[scheduler.Account]resources.Amounts {
	share := func(e Excess) float64 { return fairshare.Of(fairshare.Terms{}, e.Amounts, total).Value }
	order := slices.SortedFunc(slices.Values(excess), func(x, y Excess) int {
		return cmp.Or(cmp.Compare(share(y), share(x)), strings.Compare(x.Account.Consumer, y.Account.Consumer),
			strings.Compare(x.Account.Creator, y.Account.Creator))
	})
	reclaimed, left := map[scheduler.Account]resources.Amounts{}, maps.Clone(lacking)
	for _, e := range order {
		amounts := e.Amounts.Min(left).Excess(nil) // Only amounts above zero.
		left.Sub(amounts)
		if len(amounts) > 0 {
			reclaimed[e.Account] = amounts
		}
	}
	return reclaimed
}
