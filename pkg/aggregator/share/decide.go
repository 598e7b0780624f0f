// Package share divides the sum that the providers granted among the ResourceSlices of consumers. It is pure.
package share

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Slice is a ResourceSlice as the decision sees it.
type Slice struct {
	Name types.NamespacedName
	// Consumer is the id of the cluster that requests it.
	Consumer string
	Created  time.Time
	// Requested are the amounts that the slice names. The broker chooses the amounts of cpu, memory, ephemeral-storage
	// and pods that it does not name.
	Requested resources.Amounts
	// Granted is its present grant; nil is none yet.
	Granted resources.Amounts
	// Running has the requests of the pods that count in the slice: pods that were created with its certificate, and
	// pods without a known creator that are assigned to it. Liqo's quota blocks new pods, and ends none.
	Running resources.Amounts
	// Former has its recent grants: pods that were created under them may not be known yet.
	Former resources.Amounts
	// Gone means that it was deleted, or is denied by Liqo. It gets no offer.
	Gone bool
	// Frozen: it keeps its grant and gets no more. CoolingDown: it gets no more for some time, because its grant
	// changed recently.
	Frozen, CoolingDown bool
}

// Counted is the least amount that the limit of its consumer counts, even if the grant is smaller.
func (s *Slice) Counted() resources.Amounts { return s.Running.Max(s.Former) }

// CompareAge orders slices, the oldest first.
func CompareAge(a, b *Slice) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name.String(), b.Name.String()))
}

// Offer is the new grant of a slice, or its denial.
type Offer struct {
	// Granted is nil when the slice is denied.
	Granted resources.Amounts
	// Reason is the reason for the denial, or names the missing resources; "" is none.
	Reason string
}

// Decision has the offers, and by consumer the part of the sum that it has a right to; the latter is nil without shares.
type Decision struct {
	Offers   map[types.NamespacedName]Offer
	Entitled map[string]resources.Amounts
}

// Rules control how the sum is divided.
type Rules struct {
	// Overcommit is the factor by which the sum is multiplied.
	Overcommit float64
	// Hysteresis is the share of a grant by which it must be able to grow before a new offer is made; 0.05 is 5 %.
	Hysteresis float64
	// Limits are the maximum for all slices of a consumer together, by the consumer's id. A consumer without an entry,
	// or a resource that the entry does not name, has no limit.
	Limits map[string]resources.Amounts
	// Shares are the terms by which consumers share the sum, by the consumer's id; a consumer without an entry has the
	// zero Terms. With nil the sum is not shared: the oldest slices go first.
	Shares map[string]fairshare.Terms
}

// maxResources is the number of resources that a slice may have, including the defaulted ones. The admission policy in
// deploy/guard.yaml rejects more.
const maxResources = 200

// defaulted returns the resources that a slice gets without naming them, as in Liqo's default class.
func defaulted() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
	}
}

// Decide divides the sum of the providers' grants among the slices, and returns an offer for each of them that is not
// gone.
//
// All offers together never exceed the sum times Overcommit, and the offers to a consumer never exceed its limit.
// Slices with a grant keep it, the oldest first. The part that no longer fits, because the sum or the limit is smaller,
// is removed at once, but the grant stays, if necessary with amounts of 0. The rest goes to slices that request more
// than they have, again the oldest first: in part to slices with a grant, all or nothing to slices without one. Of a
// defaulted resource a slice gets everything that is free. The order of the given slices does not matter.
//
// Pod requests that exceed the grant of their slice, or whose slice has none, are subtracted from the limit before the
// consumer's younger slices keep their grants, and from the sum before a slice gets more. They do not reduce the grants
// of other consumers.
//
// With Shares no consumer has more than the part that it has a right to, which is divided among its slices in
// this way. A slice without a grant then gets a part of its request, if no resource of that part is zero.
func Decide(sum resources.Amounts, rules Rules, requests []Slice) Decision {
	all := slices.Clone(requests)
	slices.SortFunc(all, func(a, b Slice) int { return CompareAge(&a, &b) })
	d := allocation{total: sum.Scale(rules.Overcommit), rules: rules}
	if rules.Shares == nil {
		return Decision{Offers: d.divide(all)}
	}
	return d.decideShared(all)
}

// divide decides about all slices, which are sorted by age.
func (d *allocation) divide(all []Slice) map[types.NamespacedName]Offer {
	d.Budget = NewBudget(d.total, narrowed(d.rules.Limits, d.entitled))
	offers := make(map[types.NamespacedName]Offer, len(all))

	// 1. Present grants are kept.
	for i := range all {
		if s := &all[i]; s.Gone {
			d.takeFromLimit(s.Consumer, s.Counted())
		}
	}
	for i := range all {
		s := &all[i]
		if s.Gone {
			continue
		}
		var granted resources.Amounts
		if s.Granted != nil {
			granted = d.retain(s)
			offers[s.Name] = Offer{Granted: granted}
		}
		d.takeFromLimit(s.Consumer, s.Counted().Excess(granted))
	}
	for i := range all {
		d.sum.Sub(all[i].Running.Excess(offers[all[i].Name].Granted))
	}
	// 2. The rest is granted.
	for i := range all {
		s := &all[i]
		if s.Gone {
			continue
		}
		d.ReleaseUsed(s, offers[s.Name].Granted)
		switch {
		case s.Granted == nil:
			offers[s.Name] = d.grant(s)
		case s.Frozen || s.CoolingDown || s.names() > maxResources:
			offers[s.Name] = d.offer(s, offers[s.Name].Granted)
		default:
			offers[s.Name] = d.offer(s, d.grow(s, offers[s.Name].Granted))
		}
		d.TakeUsed(s, offers[s.Name].Granted)
	}
	return offers
}

// allocation is a sum that is being divided.
type allocation struct {
	Budget

	total resources.Amounts
	rules Rules
	// entitled are the parts that consumers have a right to; nil if the sum is not shared.
	entitled map[string]resources.Amounts
}

// limit returns how much of a resource a slice may have: the requested amount, or everything of a defaulted resource.
func (s *Slice) limit(name corev1.ResourceName) (amount int64, named bool) {
	if requested, ok := s.Requested[name]; ok {
		return max(requested, 0), true
	}
	if slices.Contains(defaulted(), name) {
		return math.MaxInt64, false
	}
	return 0, false
}

// names returns the number of resources that it requests or gets by default.
func (s *Slice) names() int {
	count := len(s.Requested)
	for _, name := range defaulted() {
		if _, named := s.Requested[name]; !named {
			count++
		}
	}
	return count
}

// tooMany returns the reason for denying a slice that names too many resources.
func (s *Slice) tooMany() string {
	return fmt.Sprintf("%d resources including the defaults, at most %d allowed: request fewer, or use several ResourceSlices",
		s.names(), maxResources)
}

// retain keeps the present grant of a slice, up to the available and the requested amounts.
func (d *allocation) retain(s *Slice) resources.Amounts {
	retained := make(resources.Amounts, len(s.Granted))
	for name, amount := range s.Granted {
		limit, named := s.limit(name)
		if limit == 0 && !named || s.names() > maxResources && d.total[name] == 0 {
			continue
		}
		available, _ := d.left(s.Consumer, name)
		retained[name] = max(0, min(amount, limit, available))
	}
	d.Take(s.Consumer, retained)
	return retained
}

// grantable returns the resources that a slice may be granted.
func (d *allocation) grantable(s *Slice) []corev1.ResourceName {
	names := make(resources.Amounts, len(s.Requested))
	for name := range s.Requested {
		names[name] = 0
	}
	for _, name := range defaulted() {
		if d.total[name] > 0 {
			names[name] = 0
		}
	}
	return ordered(names)
}

// grow grants a slice more than it retained, if the difference is worth a new offer.
func (d *allocation) grow(s *Slice, retained resources.Amounts) resources.Amounts {
	grown, worthwhile := make(resources.Amounts, len(retained)), false
	for _, name := range d.grantable(s) {
		granted := retained[name]
		limit, named := s.limit(name)
		available, _ := d.left(s.Consumer, name)
		grown[name] = granted + min(max(0, limit-granted), available)
		more := grown[name] - granted
		// A slice that can reach a requested amount gets it, however small the difference is.
		worthwhile = worthwhile || float64(more) > d.rules.Hysteresis*float64(granted) || (more > 0 && named && grown[name] == limit)
	}
	if !worthwhile {
		return retained
	}
	d.Release(s.Consumer, retained)
	d.Take(s.Consumer, grown)
	return grown
}

// grant makes the first offer to a slice: the requested amounts, with shares a part of them, or a denial.
func (d *allocation) grant(s *Slice) Offer {
	switch {
	case s.Frozen:
		return Offer{Reason: "no new slices are granted to this consumer"}
	case s.names() > maxResources:
		return Offer{Reason: s.tooMany()}
	}
	granted, missing := resources.Amounts{}, []string(nil)
	for _, name := range d.grantable(s) {
		limit, named := s.limit(name)
		switch left, limited := d.left(s.Consumer, name); {
		case named && limit > left && (d.entitled == nil || left == 0):
			missing = append(missing, fmt.Sprintf("%s: %s requested, %s left of %s",
				shortened(name), quantityText(name, limit), quantityText(name, left), d.whole(s, name, limited)))
		case !named && left == 0 && name != corev1.ResourceEphemeralStorage:
			missing = append(missing, fmt.Sprintf("%s: nothing left of %s", shortened(name), d.whole(s, name, limited)))
		default:
			granted[name] = min(limit, left)
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, named := s.Requested[name]; !named && d.total[name] == 0 {
			missing = append(missing, fmt.Sprintf("%s: the providers grant none", name))
		}
	}
	if len(missing) > 0 {
		return Offer{Reason: joined(missing, "; ")}
	}
	d.Take(s.Consumer, granted)
	return d.offer(s, granted)
}

// offer returns a grant. Its reason names the requested resources that are missing.
func (d *allocation) offer(s *Slice, granted resources.Amounts) Offer {
	if s.names() > maxResources {
		return Offer{Granted: granted, Reason: s.tooMany()}
	}
	var missing []string
	for _, name := range ordered(s.Requested) {
		if granted := granted[name]; granted < s.Requested[name] {
			_, limited := d.left(s.Consumer, name)
			missing = append(missing, fmt.Sprintf("%s: %s requested, %s granted of %s",
				shortened(name), quantityText(name, s.Requested[name]), quantityText(name, granted), d.whole(s, name, limited)))
		}
	}
	return Offer{Granted: granted, Reason: joined(missing, "; ")}
}
