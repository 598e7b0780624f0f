package histories

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// make test sets the number of histories in the environment: go test caches no results of runs with flags of their own.
var (
	count = flag.Uint64("histories", numberOr(os.Getenv("HISTORIES"), 500), "how many histories happen")
	first = flag.Uint64("seed", 0, "the seed of the first history")
	story = flag.Bool("story", false, "tell what happened to all pods, not only of histories with faults")
	short = flag.Bool("shorten", true, "make histories with faults shorter")

	reports = flag.Int("reports", 3, "after how many histories with faults to end")
)

// tries is how often a shortened history is run before it counts as free of the fault: decisions of Go's scheduler do
// not depend on the seed.
const tries = 4

func numberOr(text string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	return otherwise
}

// happened is the result of a history.
type happened struct {
	faults   []string
	stories  string
	recovery time.Duration
}

// happen runs a history in virtual time.
func happen(t *testing.T, scheme *kruntime.Scheme, h *history) (end happened) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := h.run(t.Context(), scheme)
		end.faults = o.judge()
		if end.recovery = o.recovery(); len(end.faults) > 0 || *story {
			end.stories = o.stories()
		}
	})
	return end
}

// TestHistories runs histories and judges each. A history with a fault is shortened as long as the shorter one still
// has a fault, and then printed.
func TestHistories(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	var mu sync.Mutex
	next, failed := *first, 0
	var recoveries []time.Duration
	take := func() (seed uint64, more bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next-1 < *first+*count && failed < *reports
	}
	began := time.Now()
	t.Run("in parallel", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for seed, more := take(); more; seed, more = take() {
					h := generate(seed)
					end := happen(t, scheme, h)
					if *story {
						t.Logf("%s\n%s", h, end.stories)
					}
					if len(end.faults) > 0 && *short {
						h, end = shorten(t, scheme, h, end)
					}
					for _, fault := range end.faults {
						t.Errorf("seed %d: %s", seed, fault)
					}
					mu.Lock()
					if len(end.faults) > 0 {
						failed++
						t.Logf("%s\n%s", h, end.stories)
					} else {
						recoveries = append(recoveries, end.recovery)
					}
					mu.Unlock()
				}
			})
		}
	})
	if len(recoveries) > 0 {
		slices.Sort(recoveries)
		at := func(share float64) time.Duration {
			return recoveries[int(share*float64(len(recoveries)-1))].Round(time.Second)
		}
		t.Logf("%d histories in %s; all was well %s (median), %s (p90), %s (p99), %s (most) after the last fault", len(recoveries),
			time.Since(began).Round(time.Second), at(0.5), at(0.9), at(0.99), at(1))
	}
}

// shorten removes everything from a history that is not needed to reproduce a fault.
func shorten(t *testing.T, scheme *kruntime.Scheme, h *history, end happened) (*history, happened) {
	t.Helper()
	for i := 0; ; {
		candidates := h.shorter()
		if i >= len(candidates) {
			return h, end
		}
		i++
		for range tries {
			if now := happen(t, scheme, candidates[i-1]); len(now.faults) > 0 {
				h, end, i = candidates[i-1], now, 0
				break
			}
		}
	}
}
