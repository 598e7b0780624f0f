package offer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Slice is a ResourceSlice as the decision sees it.
type Slice struct {
	Name types.NamespacedName
	// Consumer is the id of the cluster that asks.
	Consumer string
	Created  time.Time
	// Asked is what the slice names; of cpu, memory, ephemeral-storage and pods, what it does not name is left to the
	// broker.
	Asked Amounts
	// Granted is what it has; nil is nothing yet.
	Granted Amounts
	// Closed says that it keeps what it has and gets no more; Resting that it gets no more for now, because what it
	// has changed a moment ago.
	Closed, Resting bool
}

// Offer is what a slice is to have.
type Offer struct {
	// Granted is nil when the slice is denied.
	Granted Amounts
	// Reason says why it is denied, or what it has less than it asked for; "" is nothing to say.
	Reason string
}

// Rules are how the sum is shared out.
type Rules struct {
	// Overcommit is how often the sum is granted.
	Overcommit float64
	// Hysteresis is by what share of a grant it must be able to grow for a new offer to be made; 0.05 is 5 %.
	Hysteresis float64
}

// mostNames is how many resources a slice may have, those that it gets without naming them included. The guard lets
// nobody write more of them.
const mostNames = 200

// filled are the resources that a slice gets without naming them: those that Liqo's default class fills in.
func filled() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
	}
}

// Decide shares out what the providers granted, sum, among the slices, and returns an offer for each of them.
//
// All offers together are never more than the sum times Overcommit. Who has something keeps it, the oldest first; what
// does not fit any more is taken away at once, but the grant stays, if need be of nothing. What is left goes to those who
// ask for more than they have, again the oldest first: in part to those who have a grant, all or nothing to those who
// have none. A resource of filled that a slice does not name is all that is left of it. The order of the slices given
// does not matter.
func Decide(sum Amounts, rules Rules, given []Slice) map[types.NamespacedName]Offer {
	all := slices.Clone(given)
	slices.SortFunc(all, func(a, b Slice) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name.String(), b.Name.String()))
	})
	d := division{total: sum.times(rules.Overcommit), rules: rules}
	d.left = d.total.times(1)
	offers := make(map[types.NamespacedName]Offer, len(all))

	// 1. What is granted already.
	for i := range all {
		if s := &all[i]; s.Granted != nil {
			offers[s.Name] = Offer{Granted: d.keep(s)}
		}
	}
	// 2. What is left.
	for i := range all {
		s := &all[i]
		switch {
		case s.Granted == nil:
			offers[s.Name] = d.grant(s)
		case s.Closed || s.Resting || s.names() > mostNames:
			offers[s.Name] = d.told(s, offers[s.Name].Granted)
		default:
			offers[s.Name] = d.told(s, d.grow(s, offers[s.Name].Granted))
		}
	}
	return offers
}

// division is a sum that is being shared out.
type division struct {
	total, left Amounts
	rules       Rules
}

// wish is how much of a resource a slice may have at most: what it names, all of what it leaves to the broker.
func (s *Slice) wish(name corev1.ResourceName) (amount int64, named bool) {
	if asked, ok := s.Asked[name]; ok {
		return max(asked, 0), true
	}
	if slices.Contains(filled(), name) {
		return largest, false
	}
	return 0, false
}

// names is how many resources it names or gets anyway.
func (s *Slice) names() int {
	count := len(s.Asked)
	for _, name := range filled() {
		if _, named := s.Asked[name]; !named {
			count++
		}
	}
	return count
}

// tooMany says that a slice names too many resources.
func (s *Slice) tooMany() string {
	return fmt.Sprintf("%d resources, of at most %d: name fewer, or make several ResourceSlices", s.names(), mostNames)
}

// keep is what is still there of what a slice has, and still wanted.
func (d *division) keep(s *Slice) Amounts {
	kept := make(Amounts, len(s.Granted))
	for name, amount := range s.Granted {
		wish, named := s.wish(name)
		if wish == 0 && !named || s.names() > mostNames && d.total[name] == 0 {
			continue
		}
		kept[name] = max(0, min(amount, wish, d.left[name]))
	}
	d.left.take(kept)
	return kept
}

// wanted are the names that a slice may have something of.
func (d *division) wanted(s *Slice) []corev1.ResourceName {
	names := make(Amounts, len(s.Asked))
	for name := range s.Asked {
		names[name] = 0
	}
	for _, name := range filled() {
		if d.total[name] > 0 {
			names[name] = 0
		}
	}
	return names.names()
}

// grow is what a slice can have when it takes of what is left what it asks for: kept, if that is hardly more.
func (d *division) grow(s *Slice, kept Amounts) Amounts {
	grown, worthwhile := make(Amounts, len(kept)), false
	for _, name := range d.wanted(s) {
		has := kept[name]
		wish, named := s.wish(name)
		grown[name] = has + min(max(0, wish-has), d.left[name])
		more := grown[name] - has
		// Whoever can have all that it asked for gets it, be it little: it will not ask again.
		worthwhile = worthwhile || float64(more) > d.rules.Hysteresis*float64(has) || (more > 0 && named && grown[name] == wish)
	}
	if !worthwhile {
		return kept
	}
	d.left.add(kept)
	d.left.take(grown)
	return grown
}

// grant gives a slice that has nothing what it asks for, or denies it.
func (d *division) grant(s *Slice) Offer {
	switch {
	case s.Closed:
		return Offer{Reason: "no new slices are granted to this consumer"}
	case s.names() > mostNames:
		return Offer{Reason: s.tooMany()}
	}
	granted, lacking := Amounts{}, []string(nil)
	for _, name := range d.wanted(s) {
		wish, named := s.wish(name)
		switch left := d.left[name]; {
		case named && wish > left:
			lacking = append(lacking, fmt.Sprintf("%s: %s asked, %s left of %s",
				shortened(name), shown(name, wish), shown(name, left), shown(name, d.total[name])))
		case !named && left == 0 && name != corev1.ResourceEphemeralStorage:
			lacking = append(lacking, fmt.Sprintf("%s: nothing left of %s", shortened(name), shown(name, d.total[name])))
		default:
			granted[name] = min(wish, left)
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, named := s.Asked[name]; !named && d.total[name] == 0 {
			lacking = append(lacking, fmt.Sprintf("%s: the providers grant none", name))
		}
	}
	if len(lacking) > 0 {
		return Offer{Reason: listed(lacking, "; ")}
	}
	d.left.take(granted)
	return Offer{Granted: granted}
}

// told says of a grant what it lacks of what was asked for.
func (d *division) told(s *Slice, granted Amounts) Offer {
	if s.names() > mostNames {
		return Offer{Granted: granted, Reason: s.tooMany()}
	}
	var lacking []string
	for _, name := range s.Asked.names() {
		if has := granted[name]; has < s.Asked[name] {
			lacking = append(lacking, fmt.Sprintf("%s: %s asked, %s granted of %s",
				shortened(name), shown(name, s.Asked[name]), shown(name, has), shown(name, d.total[name])))
		}
	}
	return Offer{Granted: granted, Reason: listed(lacking, "; ")}
}
