package disruption

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestLimit(t *testing.T) {
	limit := NewLimit(10)
	after := func(milliseconds int) time.Time { return noon.Add(time.Duration(milliseconds) * time.Millisecond) }
	wait := func(want int, uid types.UID, now time.Time, why ...any) {
		t.Helper()
		require.Equal(t, time.Duration(want)*time.Millisecond, limit.Delay(uid, now), why...)
	}
	for i := range 8 {
		wait(0, types.UID(fmt.Sprint("first ", i)), noon)
	}
	wait(0, "a", noon)
	wait(0, "b", after(2))
	wait(0, "b", after(3), "it moves already, which the cache does not show yet")
	wait(1000, "c", after(3))
	wait(2000, "d", after(3))
	wait(1000, "c", after(4), "asking again costs nothing")
	limit.Forget("b")
	wait(1000, "d", after(5), "b runs, but c is before it, though it has not asked yet")
	wait(0, "c", after(6))
	wait(1000, "d", after(6))
	wait(2000, "e", after(6))

	for i := range 1000 {
		limit.Delay(types.UID(fmt.Sprint("lost ", i)), after(7))
	}
	wait(2000, "last", after(7), "but it asks again meanwhile")
	for i := range 1000 {
		limit.Dequeue(types.UID(fmt.Sprint("lost ", i)))
	}
	limit.Forget("unknown")
	limit.Dequeue("d")
	limit.Dequeue("e")
	wait(1000, "last", after(8), "the pods that stay hold up no other")
	wait(1000, "last", noon.Add(slowStart-time.Nanosecond))
	wait(0, "last", noon.Add(slowStart), "the first start slowly, and are not waited for")
	require.Len(t, limit.moving, 2, "c and last")
}

// A pod that waits may stop asking: its provider, which can be reached, does not answer any more whether it has ended
// (pods.Controller.checkStatus). It must not hold up the pods of others.
func TestAPodThatDoesNotAskAnyMoreHoldsUpNoOther(t *testing.T) {
	limit := NewLimit(1)
	require.Zero(t, limit.Delay("first", noon))
	require.Positive(t, limit.Delay("silent", noon))
	for now := noon; now.Sub(noon) < time.Hour; now = now.Add(longestDelay) {
		if limit.Delay("other", now) == 0 {
			require.Positive(t, limit.Delay("silent", now))
			require.Zero(t, limit.Delay("silent", now.Add(slowStart)), "it keeps its place")
			return
		}
	}
	t.Fatal("it has waited for an hour")
}

// However pods ask, ask again, run and stay, no more of them move at once than the limit allows, and a pod that keeps
// asking moves.
func TestMovesKeepTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most, pods = 3, 20
		limit, now := NewLimit(most), noon
		moving := map[types.UID]time.Time{}
		step := func() {
			uid := types.UID(fmt.Sprint(rapid.IntRange(0, pods-1).Draw(t, "pod")))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				limit.Dequeue(uid)
			case 1:
				limit.Forget(uid)
				delete(moving, uid)
			default:
				if limit.Delay(uid, now) == 0 && moving[uid].IsZero() {
					moving[uid] = now
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "milliseconds")) * time.Millisecond)
			for other, left := range moving {
				if now.Sub(left) >= slowStart {
					delete(moving, other)
				}
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			step()
			require.LessOrEqual(t, len(moving), most)
		}
		waiting := map[types.UID]bool{}
		for i := range pods {
			waiting[types.UID(fmt.Sprint(i))], waiting[types.UID(fmt.Sprint("last ", i))] = true, true
		}
		for began := now; len(waiting) > 0; now = now.Add(slowStart / most) {
			for uid := range waiting {
				if limit.Delay(uid, now) == 0 {
					delete(waiting, uid)
				}
			}
			require.Less(t, now.Sub(began), 3*pods*slowStart)
		}
	})
}
