package scheduler

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
)

// Closure is why a slice takes no pods now although it is ready: pods that were assigned there did not start.
type Closure struct {
	// Owners are the owners of the pods that did not start. If they all have one owner, the slice is closed for that
	// owner's pods only; otherwise for all pods. So one owner cannot close a slice for others.
	Owners []string
	// TrialAt is when one pod may be assigned there nevertheless; zero is never.
	TrialAt time.Time
}

// Concerns reports whether the slice is closed for the pods of an owner.
func (c *Closure) Concerns(owner string) bool {
	return c != nil && (len(c.Owners) != 1 || slices.Contains(c.Owners, owner))
}

// keepsOut reports whether a pod of an owner may not be assigned now.
func (c *Closure) keepsOut(owner string, now time.Time) bool {
	return c.Concerns(owner) && (c.TrialAt.IsZero() || now.Before(c.TrialAt))
}

// Reservation keeps a part of a slice free for one waiting pod: capacity that becomes free is not assigned to other
// pods until the pod fits.
type Reservation struct {
	UID      types.UID
	Requests resources.Amounts
}

// claims keep pods out of a slice that has capacity for them.
type claims struct {
	closed   *Closure
	reserved *Reservation
	// amounts are the requests of reserved.
	amounts amounts.Flat
}

// claim returns the claims for a closure and a reservation; nil if there is neither.
func (s *State) claim(closed *Closure, reserved *Reservation) *claims {
	if closed == nil && reserved == nil {
		return nil
	}
	c := &claims{closed: closed, reserved: reserved}
	if reserved != nil {
		for _, requested := range s.table.Flatten(nil, reserved.Requests) {
			if requested.Number >= 0 { // A resource without a number is granted nowhere.
				c.amounts = c.amounts.Add(requested.Number, requested.Amount)
			}
		}
	}
	return c
}

// Claim closes a slice, and reserves a part of it; nil opens it, and reserves nothing.
func (s *State) Claim(at Place, closed *Closure, reserved *Reservation) {
	if l := s.loads[at]; l != nil {
		l.claims = s.claim(closed, reserved)
	}
}

// closedFor reports whether a slice is closed for a pod of an owner.
func (c *claims) closedFor(owner string, now time.Time) bool {
	return c != nil && c.closed.keepsOut(owner, now)
}

// reservedBefore returns the amounts reserved for a pod other than of.
func (c *claims) reservedBefore(of types.UID) amounts.Flat {
	if c == nil || c.reserved == nil || c.reserved.UID == of {
		return nil
	}
	return c.amounts
}

// Grants reports whether a slice takes pods and a pod with these requests would fit into it if it were empty. missing
// is the share of the requests that is not free now.
func (s *State) Grants(at Place, d Demand) (missing float64, fits bool) {
	slice, usable := s.usableSlice(at)
	if !usable {
		return 0, false
	}
	for i := range d {
		number, known := numberOf(&s.table, d[i])
		if !known || slice.granted.Of(number) < d[i].Amount {
			return 0, false
		}
		if short := d[i].Amount - (slice.granted.Of(number) - slice.load.assigned.Of(number)); short > 0 {
			missing = max(missing, float64(short)/float64(d[i].Amount))
		}
	}
	return missing, true
}
