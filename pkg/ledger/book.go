// Package ledger records which pod held which resources at which provider, from when to when, and the cost. A segment is
// one such time with the same requests. Hours, costs and bills are computed from segments and prices, so no time can be
// counted twice.
package ledger

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Holding is a pod that holds resources at a provider.
type Holding struct {
	UID types.UID
	// Consumer is the id of the cluster that the pod came from; "" is the broker's own.
	Consumer, Namespace, Pod string
	// Workload is the application of the pod; "" if it is not known.
	Workload string
	Provider string
	// Assigned is when the pod was assigned to the provider.
	Assigned time.Time
	Requests resources.Amounts
	// Ended is when the pod ended, if it still exists; zero while it runs.
	Ended time.Time
}

// Segment is a time in which a pod held the same resources at one provider.
type Segment struct {
	Holding

	// Start is inclusive. Stop is exclusive, and zero while the pod holds the resources.
	Start, Stop time.Time
}

// Book follows pods. It has the open segments, and those that have changed since Flush. It is not safe for concurrent use.
type Book struct {
	open map[types.UID]*Segment
	// closed has the last segment of each pod that holds nothing, until Forget.
	closed  map[types.UID]*Segment
	changed []Segment
}

// NewBook returns a Book that continues open segments.
func NewBook(open []Segment) *Book {
	b := &Book{open: make(map[types.UID]*Segment, len(open)), closed: map[types.UID]*Segment{}}
	for i := range open {
		b.open[open[i].UID] = &open[i]
	}
	return b
}

// Observe notes that a pod holds resources. now is when that was seen: a pod that has left a provider since it was seen
// last is charged until then. The segments of a pod never overlap.
func (b *Book) Observe(now time.Time, h *Holding) {
	before := b.open[h.UID]
	if before != nil && before.Assigned.Equal(h.Assigned) && before.Provider == h.Provider {
		switch {
		case !h.Ended.IsZero():
			b.close(before, earlier(h.Ended, now))
		case !maps.Equal(before.Requests, h.Requests): // It was resized.
			b.close(before, now)
			b.begin(h, after(before))
		}
		return
	}
	if before != nil {
		b.close(before, earlier(now, h.Assigned))
	}
	last, start := b.closed[h.UID], h.Assigned
	if last != nil {
		if last.Assigned.Equal(h.Assigned) && last.Provider == h.Provider && !h.Ended.IsZero() {
			return // It ended before.
		}
		// The clock of another broker wrote Assigned; or the pod was not seen for a while.
		start = later(start, after(last))
	}
	b.begin(h, start)
	if !h.Ended.IsZero() {
		b.close(b.open[h.UID], earlier(h.Ended, later(now, start)))
	}
}

// Release notes that a pod holds nothing from now on: it is leaving its provider, or is gone.
func (b *Book) Release(now time.Time, uid types.UID) {
	if open := b.open[uid]; open != nil {
		b.close(open, now)
	}
}

// Remember notes the last segment of a pod that holds nothing, which an earlier Book closed.
func (b *Book) Remember(last *Segment) {
	if b.open[last.UID] == nil {
		b.closed[last.UID] = last
	}
}

// Forget notes that a pod is gone, and its UID does not come back.
func (b *Book) Forget(now time.Time, uid types.UID) {
	b.Release(now, uid)
	delete(b.closed, uid)
}

// ReleaseOthers notes that all pods but these hold nothing from now on.
func (b *Book) ReleaseOthers(now time.Time, holding map[types.UID]bool) {
	for uid := range b.open {
		if !holding[uid] {
			b.Release(now, uid)
		}
	}
}

// after returns the earliest start of the next segment of a pod: a Store tells segments apart by their start.
func after(s *Segment) time.Time { return later(s.Stop, s.Start.Add(time.Millisecond)) }

func (b *Book) begin(h *Holding, start time.Time) {
	s := &Segment{Holding: *h, Start: start}
	s.Ended = time.Time{}
	b.open[h.UID] = s
	delete(b.closed, h.UID)
	b.changed = append(b.changed, *s)
}

// close ends a segment, no earlier than it began: clocks may have stepped back.
func (b *Book) close(s *Segment, at time.Time) {
	s.Stop = later(at, s.Start)
	delete(b.open, s.UID)
	b.closed[s.UID] = s
	b.changed = append(b.changed, *s)
}

// Changed returns the segments that have changed since the last Flush, in the order of the changes.
func (b *Book) Changed() []Segment { return b.changed }

// Flush forgets changes: those that were returned have been written.
func (b *Book) Flush(written int) { b.changed = append([]Segment(nil), b.changed[written:]...) }

// Open returns the open segments.
func (b *Book) Open() []Segment {
	open := make([]Segment, 0, len(b.open))
	for _, s := range b.open {
		open = append(open, *s)
	}
	return open
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
