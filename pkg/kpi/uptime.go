package kpi

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// memory is the longest window.
	memory = 30 * 24 * time.Hour
	// maxGaps bounds the history; the two closest gaps become one when there are more.
	maxGaps = 100
)

// Uptime is the history of one provider: when the broker first and last probed it, and the gaps between.
type Uptime struct {
	since, until time.Time
	gaps         []gap
	// staleAfter is the time without a probe after which that time counts as unobserved.
	staleAfter time.Duration
}

type gap struct {
	from, to time.Time
	down     bool
}

// newUptime reads a history back. A pause of more than staleAfter between two observations is unobserved time.
func newUptime(from v1alpha1.Uptime, staleAfter time.Duration) *Uptime {
	u := &Uptime{staleAfter: staleAfter}
	if from.Since == nil || from.Until == nil {
		return u
	}
	u.since, u.until = from.Since.Time, from.Until.Time
	for _, g := range from.Gaps {
		u.gaps = append(u.gaps, gap{from: g.From.Time, to: g.To.Time, down: g.Kind == v1alpha1.GapDown})
	}
	return u
}

// Observe records that the provider was up, or down, at now. The provider is assumed to have been in this state since
// the last observation. Times that do not advance are ignored.
func (u *Uptime) Observe(now time.Time, up bool) {
	if u.since.IsZero() {
		u.since, u.until = now, now
		return
	}
	if !now.After(u.until) {
		return
	}
	last := u.until
	u.until = now
	switch {
	case now.Sub(last) > u.staleAfter:
		u.add(gap{from: last, to: now})
	case !up:
		u.add(gap{from: last, to: now, down: true})
	}
	u.forget(now.Add(-memory))
}

func (u *Uptime) add(g gap) {
	if n := len(u.gaps); n > 0 && u.gaps[n-1].down == g.down && !g.from.After(u.gaps[n-1].to) {
		u.gaps[n-1].to = g.to
		return
	}
	u.gaps = append(u.gaps, g)
	if len(u.gaps) > maxGaps {
		u.joinClosest()
	}
}

// joinClosest merges the two neighbours of the same kind with the least time between them or, if no neighbours are of
// the same kind, drops the oldest gap.
func (u *Uptime) joinClosest() {
	best, least := -1, time.Duration(0)
	for i := range len(u.gaps) - 1 {
		between := u.gaps[i+1].from.Sub(u.gaps[i].to)
		if u.gaps[i].down == u.gaps[i+1].down && (best < 0 || between < least) {
			best, least = i, between
		}
	}
	if best < 0 {
		u.gaps = slices.Delete(u.gaps, 0, 1)
		return
	}
	u.gaps[best].to = u.gaps[best+1].to
	u.gaps = slices.Delete(u.gaps, best+1, best+2)
}

func (u *Uptime) forget(before time.Time) {
	if u.since.Before(before) {
		u.since = before
	}
	u.gaps = slices.DeleteFunc(u.gaps, func(g gap) bool { return !g.to.After(before) })
}

// Share returns the part of the window before the last observation in which the provider was up, from 0 to 1, of the
// observed time; false if no time was observed.
func (u *Uptime) Share(window time.Duration) (float64, bool) {
	start := u.until.Add(-window)
	if start.Before(u.since) {
		start = u.since
	}
	observed, down := u.until.Sub(start), time.Duration(0)
	for _, g := range u.gaps {
		from := g.from
		if from.Before(start) {
			from = start
		}
		if lasted := g.to.Sub(from); lasted > 0 {
			if g.down {
				down += lasted
			} else {
				observed -= lasted
			}
		}
	}
	if observed <= 0 {
		return 0, false
	}
	return float64(observed-down) / float64(observed), true
}

// Status writes the history and its shares.
func (u *Uptime) Status() v1alpha1.Uptime {
	if u.since.IsZero() {
		return v1alpha1.Uptime{}
	}
	since, until := metav1.NewTime(u.since), metav1.NewTime(u.until)
	status := v1alpha1.Uptime{
		LastHour: u.text(time.Hour), LastDay: u.text(24 * time.Hour),
		LastWeek: u.text(7 * 24 * time.Hour), LastMonth: u.text(memory),
		Since: &since, Until: &until,
	}
	for _, g := range u.gaps {
		kind := v1alpha1.GapUnobserved
		if g.down {
			kind = v1alpha1.GapDown
		}
		status.Gaps = append(status.Gaps, v1alpha1.Gap{From: metav1.NewTime(g.from), To: metav1.NewTime(g.to), Kind: kind})
	}
	return status
}

func (u *Uptime) text(window time.Duration) string {
	share, known := u.Share(window)
	if !known {
		return ""
	}
	return strconv.FormatFloat(share, 'f', 4, 64)
}
