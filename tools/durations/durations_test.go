package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADurationIsWithoutSubtests(t *testing.T) {
	for name, tc := range map[string]struct {
		events string
		want   map[string]float64
	}{
		"a test alone": {
			`{"Action":"run","Package":"p","Test":"TestA"}
			 {"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.23}`,
			map[string]float64{"p TestA": 1.2},
		},
		"one with subtests": {
			`{"Action":"pass","Package":"p","Test":"TestA/b","Elapsed":3}
			 {"Action":"pass","Package":"p","Test":"TestA/c/d","Elapsed":1}
			 {"Action":"pass","Package":"p","Test":"TestA/c","Elapsed":1.5}
			 {"Action":"pass","Package":"p","Test":"TestA","Elapsed":10}`,
			map[string]float64{"p TestA": 5.5, "p TestA/b": 3, "p TestA/c": 0.5, "p TestA/c/d": 1},
		},
		"subtests side by side": {
			`{"Action":"pass","Package":"p","Test":"TestA/b","Elapsed":3}
			 {"Action":"pass","Package":"p","Test":"TestA/c","Elapsed":3}
			 {"Action":"pass","Package":"p","Test":"TestA","Elapsed":4}`,
			map[string]float64{"p TestA": 0, "p TestA/b": 3, "p TestA/c": 3},
		},
		"one that fails, one that is skipped, and a package": {
			`{"Action":"fail","Package":"p","Test":"TestA","Elapsed":2}
			 {"Action":"skip","Package":"p","Test":"TestB","Elapsed":2}
			 {"Action":"fail","Package":"p","Elapsed":5}`,
			map[string]float64{"p TestA": 2},
		},
		"a package of this repository": {
			`{"Action":"pass","Package":"github.com/capacitorset/liqo-broker-vk/test/e2e","Test":"TestA","Elapsed":2}`,
			map[string]float64{"test/e2e TestA": 2},
		},
		"a result of an earlier run": {
			`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2}
			 {"Action":"output","Package":"p","Output":"ok  \tp\t(cached)\n"}`,
			map[string]float64{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := measured{tests: map[string]float64{}}
			require.NoError(t, run.read(strings.NewReader(tc.events)))
			require.Equal(t, tc.want, run.tests)
		})
	}
	require.Error(t, (&measured{}).read(strings.NewReader("no JSON")))
}

func TestWhatBecameSlower(t *testing.T) {
	before := record{Steps: map[string]float64{"e2e": 600, "unit": 20}, Tests: map[string]float64{"p TestA": 40}}
	for name, tc := range map[string]struct {
		run  measured
		want []string
	}{
		"nothing":            {measured{steps: []step{{"e2e", 600}}, tests: map[string]float64{"p TestA": 41}}, nil},
		"a little":           {measured{steps: []step{{"e2e", 900}, {"unit", 39}}, tests: map[string]float64{"p TestA": 70}}, nil},
		"a step":             {measured{steps: []step{{"e2e", 1000}}}, []string{"make e2e took 16m40s, recorded are 10m0s"}},
		"a test":             {measured{tests: map[string]float64{"p TestA": 75.5}}, []string{"p TestA took 1m16s, recorded are 40s"}},
		"one not recorded":   {measured{tests: map[string]float64{"p TestNew": 30}}, []string{"p TestNew took 30s, recorded are 5s"}},
		"a step without one": {measured{steps: []step{{"new", 1000}}}, nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, slower(tc.run, before)) })
	}
	require.Empty(t, slower(measured{tests: map[string]float64{"p TestA": 100}}, record{}), "there is no record yet")
}

func TestTheSlowestAreReported(t *testing.T) {
	run := measured{steps: []step{{"unit", 70}, {"e2e", 900.5}}, tests: map[string]float64{"p TestB": 10, "p TestA": 10, "p TestC": 100}}
	for i := range 30 {
		run.tests["p TestFast"+strings.Repeat("x", i)] = 0.1
	}
	var out bytes.Buffer
	require.NoError(t, report(&out, run, recordOf(measured{steps: []step{{"unit", 10}}})))
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, []string{
		"", "The slowest tests, each without its subtests:", "  1m40s  p TestC", "    10s  p TestA", "    10s  p TestB",
	}, lines[:5])
	require.Equal(t, 17, strings.Count(out.String(), "TestFast"))
	require.Contains(t, out.String(), "WARNING: slower than in test/durations.json")
	require.True(t, strings.HasSuffix(out.String(), "\nThe steps:\n   1m10s  unit\n   15m1s  e2e\n  16m11s  total\n"), out.String())
}

// makefile is a Makefile whose targets write the same files as gotestsum.
const makefile = `
good:
	@echo '{"Action":"pass","Package":"p","Test":"TestA","Elapsed":7}' > dist/durations/good.jsonl
bad: good
	@exit 3
`

func TestStepsRunInOrderUntilOneFails(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "test"), 0o750))
	require.ErrorContains(t, run(t.Context(), []string{"record", "-directory=" + dir}, &bytes.Buffer{}, &bytes.Buffer{}),
		"run make test first")

	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"run", "-directory=" + dir, "good"}, &out, &out))
	require.Contains(t, out.String(), "7s  p TestA")
	require.NoError(t, run(t.Context(), []string{"record", "-directory=" + dir}, &out, &out))
	var kept record
	require.NoError(t, readJSON(filepath.Join(dir, recordFile), &kept))
	require.Equal(t, map[string]float64{"p TestA": 7}, kept.Tests)
	require.Contains(t, kept.Steps, "good")

	out.Reset()
	require.ErrorContains(t, run(t.Context(), []string{"run", "-directory=" + dir, "bad", "good"}, &out, &out), "make bad: exit status 2")
	require.Contains(t, out.String(), "bad\n")
	require.NotContains(t, out.String(), "good\n")
	require.Contains(t, out.String(), "7s  p TestA", "there is a report all the same")
}

func TestArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"use run or record":      {},
		`unknown command "walk"`: {"walk"},
		"flag provided but not":  {"run", "-fast"},
	} {
		require.ErrorContains(t, run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}), want)
	}
}
