package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFiguresAreMedians(t *testing.T) {
	r := &report{Name: "pod", Seconds: 12}
	for _, v := range []float64{90, 100, 800} {
		r.add(stock, "created to Ready", "ms", v)
	}
	for _, v := range []float64{60, 70, 80, 900} {
		r.add(ours, "created to Ready", "ms", v).ratioAtMost(0.7)
	}
	r.add(ours, "memory", "MB", 300).atMost(250)
	r.add(ours, "least Ready", "pods", 90).atLeast(90)
	r.judge()

	var out bytes.Buffer
	require.NoError(t, r.print(&out))
	assert.Equal(t, `
pod (12 s)
                   STOCK    OURS      OURS/STOCK   GOAL             
created to Ready   100 ms   75 ms     0.75         ≤ 0.7, not met   
memory                      300 MB                 ≤ 250, not met   
least Ready                 90 pods                ≥ 90             
`, out.String())
}

func TestTimesBecomeQuantiles(t *testing.T) {
	var took []float64
	for i := range 1000 {
		took = append(took, float64(i))
	}
	r := &report{}
	r.addTimes(ours, "10 pods", took, 0)
	got := map[string]float64{}
	for _, f := range r.Figures {
		got[f.Name] = f.Ours[0]
		assert.Nil(t, f.Goal)
	}
	assert.Equal(t, map[string]float64{"10 pods, p50": 500, "10 pods, p90": 900, "10 pods, p99": 990, "10 pods, last": 999}, got)

	single := &report{}
	single.addTimes(ours, "one pod", []float64{3}, 0)
	for _, f := range single.Figures {
		assert.Equal(t, []float64{3}, f.Ours)
	}
}

func TestLinesOfBenchmarks(t *testing.T) {
	r := &report{}
	assert.True(t, readBenchmark(r, "BenchmarkDecision/100_providers-2   \t  100\t 10123 ns/op\t  98785 decisions/s\t 12 allocs/op"))
	for _, line := range []string{
		"", "PASS", "goos: linux", "ok  \tgithub.com/x/y\t3.2s", "Benchmark is a word", "BenchmarkX lots 1 ns/op",
		"BenchmarkX 1 some ns/op",
	} {
		assert.False(t, readBenchmark(r, line), line)
	}
	got := map[string]float64{}
	for _, f := range r.Figures {
		got[f.text(f.Ours)+" of "+f.Name] = f.Ours[0]
	}
	assert.Equal(t, map[string]float64{
		"1.012e+04 ns/op of Decision/100_providers-2":                    10123,
		"9.878e+04 decisions/s of Decision/100_providers-2, decisions/s": 98785,
		"12 allocs/op of Decision/100_providers-2, allocs/op":            12,
	}, got)
}

// A part that fails is reported, keeps its measurements, and does not end the other parts.
func TestAFailureOfAPartDoesNotEndTheOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dist", "bench.json")
	broken := part{name: "broken", measure: func(_ *bench, _ context.Context, r *report) error {
		r.add(ours, "before", "s", 1)
		return errors.New("etcdserver: request timed out")
	}}
	sound := part{name: "sound", measure: func(_ *bench, _ context.Context, r *report) error {
		r.add(ours, "after", "s", 2)
		return nil
	}}
	b := &bench{options: options{file: file}, say: func(string, ...any) {}}
	var out bytes.Buffer
	assert.EqualError(t, b.run(t.Context(), []part{broken, sound}, &out), "failed: broken")
	assert.Contains(t, out.String(), "failed: etcdserver: request timed out")

	var written result
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &written))
	require.Len(t, written.Parts, 2)
	assert.Equal(t, "etcdserver: request timed out", written.Parts[0].Error)
	assert.Equal(t, []float64{1}, written.Parts[0].Figures[0].Ours)
	assert.Equal(t, []float64{2}, written.Parts[1].Figures[0].Ours)
	assert.Empty(t, written.Parts[1].Error)
}

func TestArguments(t *testing.T) {
	for args, want := range map[string]string{
		"-parts=pod,nothing": `no part "nothing"; there are pod, `,
		"-sizes=10,0":        `"0" is not a number of pods from 1 to 20000`,
		"-rounds=0":          "-rounds=0: use at least 1",
	} {
		assert.ErrorContains(t, run(t.Context(), []string{args}, io.Discard, io.Discard), want)
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-list", "-parts=chain,pod"}, &out, io.Discard))
	assert.Equal(t, "chain        1,000 pods of a consumer through the broker, and through two hops of Liqo\n"+
		"pod          one pod at a time, over one hop and two\n", out.String())
}
