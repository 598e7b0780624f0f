package scheduler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Room is the free capacity of one slice. It is a copy.
type Room struct {
	table *amounts.Table
	free  amounts.Flat
}

// Demand has the requests of a pod, in the form that a Room of the same State compares.
type Demand []amounts.Request

// Room returns the free capacity of a slice for a pod, without the reservation for another pod. It is false if the
// slice takes no pods.
func (s *State) Room(at Place, of types.UID) (Room, bool) {
	slice, usable := s.usableSlice(at)
	if !usable {
		return Room{}, false
	}
	reserved := slice.load.claims.reservedBefore(of)
	room := Room{table: &s.table, free: slices.Clone(slice.granted)}
	for number, granted := range room.free {
		if granted != amounts.Unlimited {
			room.free[number] = granted - slice.load.assigned.Of(number) - reserved.Of(number)
		}
	}
	return room, true
}

// usableSlice returns a slice of a provider; false if it takes no pods.
func (s *State) usableSlice(at Place) (*slice, bool) {
	i, exists := s.find(at.Provider)
	if !exists || s.providers[i].filter != verdict.Passed {
		return nil, false
	}
	of := s.providers[i].slices
	k := slices.IndexFunc(of, func(candidate slice) bool { return candidate.virtualNode == at.VirtualNode })
	if k < 0 || of[k].filter != verdict.Passed {
		return nil, false
	}
	return &of[k], true
}

// Demand returns the Demand of a pod with these requests.
func (s *State) Demand(requests resources.Amounts) Demand { return s.table.Flatten(nil, requests) }

// Fits reports whether a pod fits.
func (r *Room) Fits(d Demand) bool {
	return !slices.ContainsFunc(d, func(wanted amounts.Request) bool {
		number, known := numberOf(r.table, wanted)
		return !known || r.free.Of(number) < wanted.Amount
	})
}

// Take subtracts the requests of a pod that fits.
func (r *Room) Take(d Demand) {
	for _, wanted := range d {
		if number, known := numberOf(r.table, wanted); known && r.free.Of(number) != amounts.Unlimited {
			r.free = r.free.Add(number, -wanted.Amount)
		}
	}
}

// numberOf returns the number of a resource, which may have become known since the Demand was made.
func numberOf(table *amounts.Table, wanted amounts.Request) (int, bool) {
	if wanted.Number != amounts.Unknown {
		return wanted.Number, true
	}
	return table.Number(corev1.ResourceName(wanted.Name))
}

// ReadsResources reports whether a filter expression for the pod may read the assigned and free amounts of providers.
func ReadsResources(pod *Pod, policy *Policy) bool {
	reads := func(p *cel.Program) bool { return p != nil && strings.Contains(p.Text(), "resources") }
	return reads(pod.Expression) || policy != nil && (reads(policy.Filter) || reads(policy.Score))
}
