//go:build linux && !race

package scheduler

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/celtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

const (
	// slowestFile has the slowest filters that searches found, one a line, quoted.
	slowestFile = "testdata/slowest.txt"
	// kept is the number of filters of each kind in it.
	kept = 15
	// budget is the time that a decision about 100 providers may take on one core, for any filter, compilation
	// included.
	budget = 50 * time.Millisecond
)

// TestSlowestFilters decides by the slowest filters known, each repeated as often as it fits, and searches for slower
// ones for SLOWEST_TIME. With UPDATE=1 it writes the filters found to the file (make fuzz).
func TestSlowestFilters(t *testing.T) {
	s, pod := hostileFederation()
	known := readSlowest(t)
	for _, text := range known {
		compiling, deciding := s.timeOf(pod, text, 5)
		require.LessOrEqual(t, compiling+deciding, budget, text)
	}
	search := 3 * time.Second
	if text := os.Getenv("SLOWEST_TIME"); text != "" {
		var err error
		search, err = time.ParseDuration(text)
		require.NoError(t, err, "SLOWEST_TIME")
	}
	var file strings.Builder
	for _, measure := range []struct {
		what string
		of   func(compiling, deciding time.Duration) time.Duration
	}{
		{"compiling", func(compiling, _ time.Duration) time.Duration { return compiling }},
		{"deciding", func(_, deciding time.Duration) time.Duration { return deciding }},
	} {
		found := searchSlowest(s, pod, known, search/2, measure.of)
		t.Logf("%s took at most %s: %.300s", measure.what, found[0].took, found[0].text)
		for _, f := range found[:min(len(found), kept)] {
			fmt.Fprintln(&file, strconv.Quote(f.text))
		}
		compiling, deciding := s.timeOf(pod, found[0].text, 5)
		assert.LessOrEqual(t, compiling+deciding, budget, found[0].text)
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(slowestFile, []byte(file.String()), 0o644))
	}
}

func readSlowest(t *testing.T) []string {
	t.Helper()
	file, err := os.Open(slowestFile)
	require.NoError(t, err)
	defer file.Close()
	var all []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		text, err := strconv.Unquote(lines.Text())
		require.NoError(t, err)
		all = append(all, text)
	}
	require.NoError(t, lines.Err())
	return all
}

// hostileFederation has 100 providers and a pod with the most and longest texts that expressions can see.
func hostileFederation() (*State, *Pod) {
	texts := func(last string) map[string]string {
		all := map[string]string{"x": strings.Repeat("a", values.MaxText-1) + last, "v": "1.2.3", "q": "123456Gi", "i": "10.0.0.1"}
		for i := range values.MaxTexts {
			all[fmt.Sprintf("k%d", i)] = strconv.Itoa(i)
		}
		return all
	}
	s := NewState()
	for i := range 100 {
		p := ready(fmt.Sprintf("p%03d", i))
		p.Labels, p.Attributes = texts("b"), texts("c")
		for k := range 50 {
			p.Slices[0].Granted[corev1.ResourceName(fmt.Sprintf("example.com/r%d", k))] = 5
		}
		s.SetProvider(p)
	}
	pod := asking(func(pod *Pod) { pod.Labels, pod.Annotations = texts("d"), texts("e") })
	pod.Requests = resources.Amounts{corev1.ResourceCPU: 1, corev1.ResourcePods: 1}
	return s, pod
}

// repeated repeats a term as often as a filter accepts it: costs add up.
func repeated(term string) string {
	one := "(" + term + ") || "
	most := (cel.MaxLength - 5) / len(one)
	times := sort.Search(most, func(n int) bool {
		_, err := cel.NewFilter(strings.Repeat(one, n+1) + "false")
		return err != nil
	})
	if times == 0 {
		return term
	}
	return strings.Repeat(one, times) + "false"
}

// threadTime is the CPU time of this goroutine's thread: other processes on the machine do not count.
func threadTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// timeOf returns the shortest time to compile a filter, and the shortest time to decide by it, over so many tries.
func (s *State) timeOf(pod *Pod, text string, tries int) (compiling, deciding time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	compiling, deciding = time.Hour, time.Hour
	text = repeated(text)
	for range tries {
		began := threadTime()
		filter, err := cel.NewFilter(text)
		compiling = min(compiling, threadTime()-began)
		if err != nil {
			deciding = 0
			continue
		}
		began = threadTime()
		asked := *pod
		asked.Expression = filter
		d := s.Snapshot(&asked).Decide(time.Time{}, &asked, nil)
		s.Confirm(time.Time{}, &asked, nil, &d)
		deciding = min(deciding, threadTime()-began)
	}
	return compiling, deciding
}

type slowFilter struct {
	text string
	tree *celtest.Node
	took time.Duration
}

// searchSlowest mutates the slowest filters found so far in search of slower ones, and returns the slowest first.
func searchSlowest(s *State, pod *Pod, known []string, search time.Duration,
	measure func(compiling, deciding time.Duration) time.Duration,
) []slowFilter {
	var found []slowFilter
	for _, text := range known {
		found = append(found, slowFilter{text: text, took: measure(s.timeOf(pod, text, 1))})
	}
	seed := uint64(time.Now().UnixNano())
	random := celtest.Generator{Rand: rand.New(rand.NewPCG(seed, seed))}
	for began := time.Now(); time.Since(began) < search; {
		tree := random.Filter(6)
		if of := found[:min(len(found), kept)]; len(of) > 0 && random.IntN(4) > 0 {
			if from := of[random.IntN(len(of))]; from.tree != nil {
				tree = random.Mutate(from.tree)
			}
		}
		text := tree.String()
		if len(text) > cel.MaxLength {
			continue
		}
		took := measure(s.timeOf(pod, text, 1))
		if len(found) < kept || took > found[kept-1].took {
			took = measure(s.timeOf(pod, text, 3))
			found = append(found, slowFilter{text, tree, took})
			slices.SortFunc(found, func(a, b slowFilter) int { return int(b.took - a.took) })
			found = found[:min(len(found), 10*kept)]
		}
	}
	return found
}
