package belief

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// churn has pods of half a CPU come every 5 s, and run for 15 s, as long as it is told to. Those that are woken are tried, too.
type churn struct {
	b    *Belief
	next int
}

func (c *churn) step(large map[string]int64, assigned func(name string)) {
	time.Sleep(5 * time.Second)
	c.b.tryOf("small", fmt.Sprint("small-", c.next), 500)
	c.b.gone(fmt.Sprint("small-", c.next-3))
	c.next++
	c.b.ExpireRefusals()
	for _, name := range c.b.woken() {
		if milli, is := large[name]; is && c.b.tryOf("c-"+name, name, milli) == "q1" {
			assigned(name)
		}
	}
}

func churning(t *testing.T) (*Belief, *churn) {
	t.Helper()
	b := withProviders("q")
	b.cfg.ReserveAfter = 5 * time.Minute
	for i := range 3 {
		require.Equal(t, "q1", b.tryOf("small", fmt.Sprint("small-", i), 500))
	}
	return b, &churn{b: b, next: 3}
}

func TestALargePodGetsWhatBecomesFreeAfterAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, c := churning(t)
		require.Equal(t, "insufficient cpu", b.tryOf("c-large", "large", 2000))
		began, assigned := time.Now(), time.Duration(0)
		for time.Since(began) < 6*time.Hour && assigned == 0 {
			c.step(map[string]int64{"large": 2000}, func(string) { assigned = time.Since(began) })
			if since := time.Since(began); since > 5*time.Minute+5*time.Second && assigned == 0 {
				at, reservedSince, reserved := b.ReservedFor("large")
				require.True(t, reserved)
				require.Equal(t, placed("q1"), at)
				require.LessOrEqual(t, time.Since(reservedSince), time.Minute)
				require.Equal(t, verdict.Reserved.String(), b.tryOf("other", "other", 500))
			}
		}
		require.NotZero(t, assigned, "it waits for six hours, and longer")
		require.Less(t, assigned, 7*time.Minute)
		_, _, reserved := b.ReservedFor("large")
		require.False(t, reserved)
		b.gone("large")
		require.Equal(t, "q1", b.tryOf("other", "other", 500), "others follow")
	})
}

func TestReservationsLeaveRoomForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, c := churning(t)
		require.Equal(t, "insufficient cpu", b.tryOf("c-huge", "huge", 4000))
		for i := range 20 {
			require.Equal(t, "insufficient cpu", b.tryOf("many", fmt.Sprint("many-", i), 1900))
		}
		// One runs for long, so that there is never enough.
		require.Equal(t, "q1", b.tryOf("long", "long", 500))
		began, reserved, most := time.Now(), time.Duration(0), 0
		for time.Since(began) < 6*time.Hour {
			c.step(nil, nil)
			require.NotEqual(t, "huge", b.reservedOf("q")["q1"].Pod.Name, "it is larger than the grant")
			if len(b.reservations) > 0 {
				reserved += 5 * time.Second
			}
			most = max(most, len(b.reservations))
		}
		require.Equal(t, 1, most)
		require.Greater(t, reserved, 2*time.Hour)
		require.LessOrEqual(t, reserved, 3*time.Hour+30*time.Minute, "half of the time it is for others")
	})
}

func TestAReservationEndsWithItsPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, c := churning(t)
		require.Equal(t, "insufficient cpu", b.tryOf("c-large", "large", 2000))
		require.Equal(t, "q1", b.tryOf("long", "long", 500))
		for range 70 {
			c.step(nil, nil)
		}
		_, _, reserved := b.ReservedFor("large")
		require.True(t, reserved)
		b.gone("large")
		require.Empty(t, b.reservations)
		for i := range 3 {
			b.gone(fmt.Sprint("small-", c.next-1-i))
		}
		require.Equal(t, "q1", b.tryOf("other", "other", 1000))
	})
}
