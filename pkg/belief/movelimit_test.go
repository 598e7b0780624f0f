package belief

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestMoveLimit(t *testing.T) {
	limit := newMoveLimit(10, 2)
	after := func(milliseconds int) time.Time { return noon.Add(time.Duration(milliseconds) * time.Millisecond) }
	wait := func(want int, uid types.UID, now time.Time, why ...any) {
		t.Helper()
		got := limit.delay(uid, now)
		require.InDelta(t, float64(want), float64(got)/float64(time.Millisecond), 1, why...)
		require.Equal(t, want == 0, got == 0, why...)
	}
	wait(0, "a", noon)
	wait(0, "b", noon)
	wait(100, "c", noon)
	wait(200, "d", noon)
	wait(300, "e", noon)
	wait(50, "c", after(50), "asking again costs nothing")
	wait(100, "d", after(101), "c is before it, though it has not asked yet")
	wait(0, "c", after(102))
	wait(97, "d", after(103))

	for i := range 1000 {
		limit.delay(types.UID(fmt.Sprint("lost ", i)), after(103))
	}
	wait(5000, "last", after(103), "but it asks again meanwhile")
	for i := range 1000 {
		limit.leave(types.UID(fmt.Sprint("lost ", i)))
	}
	limit.leave("unknown")
	wait(296, "last", after(104), "the pods that stay hold up no other; d and e are still there")
	limit.leave("d")
	limit.leave("e")
	later := noon.Add(time.Hour)
	wait(0, "last", later)
	wait(0, "d", later, "a pod that stayed may move later")
	wait(100, "e", later, "and waits like all others")
}

// However pods ask, ask again and stay, no more of them move than the rate allows; and a pod that keeps asking moves.
func TestMovesKeepTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perSecond, burst, pods = 10, 3, 20
		limit, now := newMoveLimit(perSecond, burst), noon
		moved := 0
		step := func() {
			uid := types.UID(fmt.Sprint(rapid.IntRange(0, pods-1).Draw(t, "pod")))
			if rapid.IntRange(0, 3).Draw(t, "stays") == 0 {
				limit.leave(uid)
			} else if limit.delay(uid, now) == 0 {
				moved++
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "milliseconds")) * time.Millisecond)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			step()
			require.LessOrEqual(t, float64(moved), burst+perSecond*now.Sub(noon).Seconds()+1e-6)
		}
		waiting := map[types.UID]bool{}
		for i := range pods {
			waiting[types.UID(fmt.Sprint(i))], waiting[types.UID(fmt.Sprint("last ", i))] = true, true
		}
		for began := now; len(waiting) > 0; now = now.Add(time.Second / perSecond) {
			for uid := range waiting {
				if limit.delay(uid, now) == 0 {
					delete(waiting, uid)
				}
			}
			require.Less(t, now.Sub(began), time.Minute)
		}
	})
}
