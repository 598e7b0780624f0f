package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestTurns(t *testing.T) {
	turns := newTurns(10, 2)
	require.Zero(t, turns.take("a", noon))
	require.Zero(t, turns.take("b", noon))
	require.Equal(t, 100*time.Millisecond, turns.take("c", noon))
	require.Equal(t, 200*time.Millisecond, turns.take("d", noon))
	require.Equal(t, 50*time.Millisecond, turns.take("c", noon.Add(50*time.Millisecond)), "asking again costs nothing")
	require.Zero(t, turns.take("c", noon.Add(100*time.Millisecond)))
	require.Equal(t, 200*time.Millisecond, turns.take("e", noon.Add(100*time.Millisecond)), "d was there before")

	turns.giveBack("d")
	turns.giveBack("e")
	turns.giveBack("nobody")
	later := noon.Add(time.Hour)
	require.Zero(t, turns.take("f", later), "nobody waits behind those who stay")
	require.Zero(t, turns.take("d", later), "who stayed, and must go later, may once more")
	require.Equal(t, 100*time.Millisecond, turns.take("e", later), "and takes its turn with all others")
}

// However pods come, come back and stay, no more of them move than the rate allows; and whoever keeps asking moves.
func TestTurnsKeepTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perSecond, burst, pods = 10, 3, 20
		turns, now := newTurns(perSecond, burst), noon
		moved := 0
		step := func() {
			uid := types.UID(fmt.Sprint(rapid.IntRange(0, pods-1).Draw(t, "pod")))
			if rapid.IntRange(0, 3).Draw(t, "stays") == 0 {
				turns.giveBack(uid)
			} else if turns.take(uid, now) == 0 {
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
			waiting[types.UID(fmt.Sprint("last ", i))] = true
		}
		for began := now; len(waiting) > 0; now = now.Add(time.Second / perSecond) {
			for uid := range waiting {
				if turns.take(uid, now) == 0 {
					delete(waiting, uid)
				}
			}
			require.Less(t, now.Sub(began), time.Minute)
		}
	})
}
