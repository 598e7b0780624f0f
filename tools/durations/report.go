package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// record is the file that is kept in the repository: the seconds of steps and of slow tests.
type record struct {
	Steps map[string]float64 `json:"steps"`
	Tests map[string]float64 `json:"tests"`
}

const (
	// recorded is the minimum number of seconds of a recorded test.
	recorded = 5
	// Machines differ: a step or test counts as slower if it takes half as long again as recorded, plus 10 seconds.
	factor, slack = 1.5, 10
)

func recordOf(run measured) record {
	r := record{Steps: map[string]float64{}, Tests: map[string]float64{}}
	for _, s := range run.steps {
		r.Steps[s.Name] = s.Seconds
	}
	for name, took := range run.tests {
		if took >= recorded {
			r.Tests[name] = took
		}
	}
	return r
}

// slower returns a line for each step and test that takes much longer than recorded. A test that is not in the record
// took less than recorded seconds, or is new.
func slower(run measured, before record) []string {
	if len(before.Steps) == 0 {
		return nil
	}
	var lines []string
	add := func(what string, took, was float64) {
		if took > factor*was+slack {
			lines = append(lines, fmt.Sprintf("%s took %s, recorded are %s", what, shown(took), shown(was)))
		}
	}
	for _, s := range run.steps {
		if was, ok := before.Steps[s.Name]; ok {
			add("make "+s.Name, s.Seconds, was)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(run.tests)) {
		was, ok := before.Tests[name]
		if !ok {
			was = recorded
		}
		add(name, run.tests[name], was)
	}
	return lines
}

// report writes the slowest tests, the steps and tests that are slower than recorded, the time of each step, and the
// total.
func report(out io.Writer, run measured, before record) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	names := slices.SortedFunc(maps.Keys(run.tests), func(a, b string) int {
		return cmp.Or(cmp.Compare(run.tests[b], run.tests[a]), cmp.Compare(a, b))
	})
	fmt.Fprintf(out, "\nThe slowest tests, each without its subtests:\n")
	for _, name := range names[:min(slowest, len(names))] {
		fmt.Fprintf(table, "%s\t  %s\n", shown(run.tests[name]), name)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if lines := slower(run, before); len(lines) > 0 {
		fmt.Fprintf(out, "\nWARNING: slower than in %s (if this is intended, record the new durations with make durations):\n", recordFile)
		for _, line := range lines {
			fmt.Fprintln(out, "  "+line)
		}
	}
	fmt.Fprintf(out, "\nThe steps:\n")
	total := 0.0
	for _, s := range run.steps {
		fmt.Fprintf(table, "%s\t  %s\n", shown(s.Seconds), s.Name)
		total += s.Seconds
	}
	fmt.Fprintf(table, "%s\t  total\n", shown(total))
	return table.Flush()
}

// shown formats a number of seconds for people.
func shown(value float64) string {
	d := time.Duration(value * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
