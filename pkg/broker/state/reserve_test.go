package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// churn has pods of half a CPU come every 5 s, and run for 15 s, as long as it is told to. Those that are woken are
// tried, too.
type churn struct {
	f    *Federation
	next int
}

func (c *churn) step(large map[string]int64, assigned func(name string)) {
	time.Sleep(5 * time.Second)
	c.f.tryOf("small", fmt.Sprint("small-", c.next), 500)
	c.f.gone(fmt.Sprint("small-", c.next-3))
	c.next++
	c.f.expire(c.f.cfg.Clock.Now())
	for _, name := range c.f.woken() {
		if milli, is := large[name]; is && c.f.tryOf("c-"+name, name, milli) == "q1" {
			assigned(name)
		}
	}
}

func churning(t *testing.T) (*Federation, *churn) {
	t.Helper()
	f := withProviders("q")
	f.cfg.ReserveAfter = 5 * time.Minute
	for i := range 3 {
		require.Equal(t, "q1", f.tryOf("small", fmt.Sprint("small-", i), 500))
	}
	return f, &churn{f: f, next: 3}
}

func TestALargePodGetsWhatBecomesFreeAfterAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := churning(t)
		require.Equal(t, "insufficient cpu", f.tryOf("c-large", "large", 2000))
		began, assigned := time.Now(), time.Duration(0)
		for time.Since(began) < 6*time.Hour && assigned == 0 {
			c.step(map[string]int64{"large": 2000}, func(string) { assigned = time.Since(began) })
			if since := time.Since(began); since > 5*time.Minute+5*time.Second && assigned == 0 {
				large := f.Pod("large")
				require.Equal(t, placed("q1"), large.ReservedAt)
				require.LessOrEqual(t, time.Since(large.ReservedSince), time.Minute)
				require.Equal(t, verdict.Reserved.String(), f.tryOf("other", "other", 500))
			}
		}
		require.NotZero(t, assigned, "it waits for six hours, and longer")
		require.Less(t, assigned, 7*time.Minute)
		require.Empty(t, f.Pod("large").ReservedAt)
		f.gone("large")
		require.Equal(t, "q1", f.tryOf("other", "other", 500), "others follow")
	})
}

func TestReservationsLeaveRoomForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := churning(t)
		require.Equal(t, "insufficient cpu", f.tryOf("c-huge", "huge", 4000))
		for i := range 20 {
			require.Equal(t, "insufficient cpu", f.tryOf("many", fmt.Sprint("many-", i), 1900))
		}
		// One runs for long, so that there is never enough.
		require.Equal(t, "q1", f.tryOf("long", "long", 500))
		began, reserved, most := time.Now(), time.Duration(0), 0
		for time.Since(began) < 6*time.Hour {
			c.step(nil, nil)
			require.NotEqual(t, "huge", f.reservedOf("q")["q1"].Pod.Name, "it is larger than the grant")
			if len(f.reservations) > 0 {
				reserved += 5 * time.Second
			}
			most = max(most, len(f.reservations))
		}
		require.Equal(t, 1, most)
		require.Greater(t, reserved, 2*time.Hour)
		require.LessOrEqual(t, reserved, 3*time.Hour+30*time.Minute, "half of the time it is for others")
	})
}

func TestAReservationEndsWithItsPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := churning(t)
		require.Equal(t, "insufficient cpu", f.tryOf("c-large", "large", 2000))
		require.Equal(t, "q1", f.tryOf("long", "long", 500))
		for range 70 {
			c.step(nil, nil)
		}
		require.NotEmpty(t, f.Pod("large").ReservedAt)
		f.gone("large")
		require.Empty(t, f.reservations)
		for i := range 3 {
			f.gone(fmt.Sprint("small-", c.next-1-i))
		}
		require.Equal(t, "q1", f.tryOf("other", "other", 1000))
	})
}

// Pods of both consumers wait for long. Capacity is reserved for the consumer with the smaller share, although the pod of
// the other has waited for longer.
func TestCapacityIsReservedByShares(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		f.cfg.ReserveAfter = time.Minute
		require.Equal(t, "q1", f.of("c1", "c1-a", 1500).VirtualNode)
		require.Equal(t, "q1", f.of("c2", "c2-a", 500).VirtualNode)
		require.Empty(t, f.of("c1", "c1-b", 400).VirtualNode)
		time.Sleep(time.Second)
		require.Empty(t, f.of("c2", "c2-b", 400).VirtualNode)
		time.Sleep(2 * time.Minute)
		f.Wake(true)
		at, _ := f.reservedFor("c2-b")
		require.Equal(t, placed("q1"), at)
	})
}
