package histories

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// interruptedHistories returns the histories that are interrupted at each write: one for each thing that can happen to
// a pod.
func interruptedHistories() map[string]*history {
	pods := func(change func(i int, pod *podSpec)) (all []podSpec) {
		for i := range 3 {
			pod := podSpec{Name: fmt.Sprintf("pod-%d", i), CPUs: 1, At: time.Duration(i) * 400 * time.Millisecond}
			change(i, &pod)
			all = append(all, pod)
		}
		return all
	}
	as := func(int, *podSpec) {}
	once := func(i int, pod *podSpec) { pod.Once, pod.Job = true, i > 0 }
	two := [][]int{{4}, {4}}
	all := map[string]*history{
		"assigned": {Providers: two, Replicas: 1, Pods: pods(as)},
		"drained": {
			Providers: two, Replicas: 1, Pods: pods(as), Faults: []fault{{Kind: "drain", At: 15 * time.Second, For: 20 * time.Second}},
		},
		"failed over, and run once": {Providers: two, Replicas: 1, Pods: pods(once), Faults: []fault{
			{Kind: "provider refuses", At: 12 * time.Second, For: 45 * time.Second},
		}},
		"failed over": {Providers: two, Replicas: 1, Pods: pods(as), Faults: []fault{
			{Kind: "provider refuses", At: 12 * time.Second, For: 45 * time.Second},
		}},
		"deleted": {Providers: two, Replicas: 1, Pods: pods(func(i int, pod *podSpec) {
			pod.Deleted, pod.Again = 10*time.Second, i > 0
		})},
		"refused": {Providers: two, Replicas: 1, Pods: pods(as), Faults: []fault{{Kind: quotaFull, For: 25 * time.Second}}},
		"ended":   {Providers: two, Replicas: 1, Pods: pods(func(_ int, pod *podSpec) { pod.Seconds = 8 })},
		"parted": {
			Providers: two, Replicas: 1, Pods: pods(as), Faults: []fault{{Kind: part, At: 12 * time.Second, For: 20 * time.Second}},
		},
	}
	if is(nodeDeleted) {
		all["without its Node"] = &history{Providers: two, Replicas: 1, Pods: pods(as), Faults: []fault{
			{Kind: nodeDeleted, At: 12 * time.Second, For: 20 * time.Second},
		}}
	}
	return all
}

var interrupted = flag.String("interrupted", "", "interrupt the histories with this in their names")

// TestEachWriteInterrupted runs a few histories once for each write of the broker and each pattern. It judges them, and
// checks that the broker writes nothing more once everything has settled.
func TestEachWriteInterrupted(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	type oneOf struct {
		name, pattern string
		at            int
	}
	var cases []oneOf
	histories := interruptedHistories()
	for _, name := range sortedKeys(histories) {
		if !strings.Contains(name, *interrupted) {
			continue
		}
		end, writes, _ := interrupt(t, scheme, histories[name], &interrupter{})
		require.Empty(t, end.faults, "%s, without an interruption\n%s", name, end.stories)
		t.Logf("%s: %d writes", name, writes)
		for pattern := range patterns() {
			for at := range writes {
				cases = append(cases, oneOf{name, pattern, at + 1})
			}
		}
	}
	slices.SortFunc(cases, func(a, b oneOf) int { return strings.Compare(a.pattern, b.pattern) })
	began := time.Now()
	work := make(chan oneOf)
	t.Run("in parallel", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for c := range work {
					end, _, write := interrupt(t, scheme, histories[c.name], &interrupter{interruption: patterns()[c.pattern], at: c.at})
					for _, fault := range end.faults {
						t.Errorf("%s, %s at write %d (%s): %s", c.name, c.pattern, c.at, write, fault)
					}
					if len(end.faults) > 0 && *story {
						t.Log(end.stories)
					}
				}
			})
		}
		go func() {
			defer close(work)
			for _, c := range cases {
				work <- c
			}
		}()
	})
	t.Logf("%d histories in %s", len(cases), time.Since(began).Round(time.Second))
}

// interrupt runs a history with an interruption. It returns how many writes there were until everything had settled,
// and the write that was interrupted.
func interrupt(t *testing.T, scheme *kruntime.Scheme, h *history, i *interrupter) (end happened, writes int, write string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		own := *h
		own.interrupter = i
		o := own.run(t.Context(), scheme)
		if end.faults = o.judge(); len(end.faults) > 0 {
			end.stories = o.stories()
		}
		writes = o.writes
		if i.at > 0 && i.at <= len(i.writes) {
			write = i.writes[i.at-1]
		}
	})
	return end, writes, write
}
