package histories

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

var (
	count = flag.Uint64("histories", 300, "how many histories")
	first = flag.Uint64("seed", 0, "the seed of the first history, and of the only one if -histories is 1")
)

// happened is what became of a history.
type happened struct {
	faults   []string
	settled  bool
	recovery time.Duration
	story    string
}

// happen lets a history happen in virtual time.
func happen(t *testing.T, scheme *kruntime.Scheme, h *history) (end happened) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := h.run(t.Context(), scheme)
		end = happened{faults: o.judge(), settled: o.unsettled == "", recovery: o.recovery()}
		end.story = o.stories(end.faults)
	})
	return end
}

// TestHistories lets histories happen, and judges each. One that fails is made shorter as long as it still fails.
func TestHistories(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	var mu sync.Mutex
	next, last := *first, *first+*count
	var recoveries []time.Duration
	began := time.Now()
	t.Run("", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					seed := next
					next++
					mu.Unlock()
					if seed >= last {
						return
					}
					end := happen(t, scheme, generate(seed))
					for _, fault := range end.faults {
						fmt.Printf("%d: %s\n", seed, fault)
					}
					if *count == 1 {
						fmt.Println(generate(seed), "\n"+end.story)
					}
					mu.Lock()
					recoveries = append(recoveries, end.recovery)
					mu.Unlock()
				}
			})
		}
	})
	slices.Sort(recoveries)
	at := func(share float64) time.Duration { return recoveries[int(share*float64(len(recoveries)-1))] }
	t.Logf("%d histories in %s; settled after %s (median), %s (p90), %s (p99), %s", len(recoveries), time.Since(began).Round(time.Second),
		at(0.5), at(0.9), at(0.99), at(1))
}
