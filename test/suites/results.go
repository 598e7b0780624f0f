package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Results of a test.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// outcome is the result of one test on one side. Why is the message of a failure.
type outcome struct{ Test, Result, Why string }

// row has the results of a test on all sides.
type row struct {
	// Package is a package of Liqo's or of the conformance suite, or kubeletSuite.
	Package string `json:"package"`
	Test    string `json:"test"`
	// Results has the result for each side, by its name, on which the test was run.
	Results map[string]string `json:"results"`
}

// packages returns the names of all packages, in the order in which they run.
func packages() (names []string) {
	names = append(names, kubeletSuite)
	for _, p := range conformance {
		names = append(names, p.name)
	}
	for _, p := range cruise {
		names = append(names, p.name)
	}
	return names
}

// packages returns the packages that run in a federation.
func (f federation) packages() (names []string) {
	for _, p := range conformance {
		if p.containers == f.containers {
			names = append(names, p.name)
		}
	}
	if f.containers {
		return names
	}
	names = append(names, kubeletSuite)
	for _, p := range cruise {
		names = append(names, p.name)
	}
	return names
}

// suites are the names of the document's tables.
var suites = []string{"liqo", "virtual-kubelet", "kubernetes"}

func suiteOf(pkg string) string {
	switch {
	case pkg == kubeletSuite:
		return "virtual-kubelet"
	case slices.ContainsFunc(conformance, func(p conformancePackage) bool { return p.name == pkg }):
		return "kubernetes"
	}
	return "liqo"
}

// merge replaces the results of a package on one side. It removes rows that have no results any more.
func merge(rows []row, pkg, side string, outcomes []outcome) []row {
	for i := range rows {
		if rows[i].Package == pkg {
			delete(rows[i].Results, side)
		}
	}
	for _, o := range outcomes {
		i := slices.IndexFunc(rows, func(r row) bool { return r.Package == pkg && r.Test == o.Test })
		if i < 0 {
			i = len(rows)
			rows = append(rows, row{Package: pkg, Test: o.Test, Results: map[string]string{}})
		}
		rows[i].Results[side] = o.Result
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return len(r.Results) == 0 })
	packages := packages()
	slices.SortStableFunc(rows, func(a, b row) int {
		if a.Package == b.Package && suiteOf(a.Package) == "kubernetes" { // It runs its specs in random order.
			return strings.Compare(a.Test, b.Test)
		}
		return slices.Index(packages, a.Package) - slices.Index(packages, b.Package)
	})
	return rows
}

func readResults(path string) (rows []row, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return rows, json.Unmarshal(text, &rows)
}

// writeResults writes one line for each test, so that diffs are readable.
func writeResults(path string, rows []row) error {
	var b bytes.Buffer
	for i, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s%s\n", []string{"[\n", ","}[min(i, 1)], line)
	}
	return os.WriteFile(path, append(b.Bytes(), "]\n"...), 0o644)
}

// faults returns the tests that fail on a side without a noted reason, the tests that pass although a reason is noted,
// the notes without a result, and the tests that pass with Liqo's virtual kubelet but not with ours in its place.
func faults(rows []row, notes []note) (found []string) {
	used := make([]bool, len(notes))
	for _, r := range rows {
		for _, side := range sideNames {
			result, noted := r.Results[side], false
			for i, n := range notes {
				if result != "" && n.covers(r, side) {
					noted, used[i] = true, true
				}
			}
			if result != "" && noted == (result == passed) {
				found = append(found,
					fmt.Sprintf("%s, %s: %s: %s (a reason for not passing is noted: %t)", side, r.Package, r.Test, result, noted))
			}
		}
		if r.Results[stock] == passed && r.Results[dropIn] != passed {
			found = append(found,
				fmt.Sprintf("%s: %s: passes with Liqo's virtual kubelet and not with ours in its place", r.Package, r.Test))
		}
	}
	for i, n := range notes {
		if !used[i] {
			found = append(found, fmt.Sprintf("%s: no result for the noted reason %q", n.pkg, n.why))
		}
	}
	return found
}

// table returns the Markdown table of a suite. It has a column for each side on which a test was run.
func table(rows []row, suite string) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return suiteOf(r.Package) != suite })
	if len(rows) == 0 {
		return "No test has been run yet.\n"
	}
	sides := slices.DeleteFunc(slices.Clone(sideNames), func(side string) bool {
		return !slices.ContainsFunc(rows, func(r row) bool { return r.Results[side] != "" })
	})
	var b strings.Builder
	fmt.Fprintf(&b, "| package | test | %s | why |\n|---|---|%s---|\n", strings.Join(sides, " | "), strings.Repeat("---|", len(sides)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | %s |", r.Package, strings.ReplaceAll(r.Test, "|", `\|`))
		for _, side := range sides {
			fmt.Fprintf(&b, " %s |", marks[r.Results[side]])
		}
		var whys []string
		for _, n := range notes {
			if slices.ContainsFunc(n.sides, func(side string) bool { return r.Results[side] != "" && n.covers(r, side) }) {
				whys = append(whys, n.why)
			}
		}
		fmt.Fprintf(&b, " %s |\n", strings.Join(whys, "; "))
	}
	return b.String()
}

// summary returns a table of the numbers of passed and run tests on each side.
func summary(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| suite | %s |\n|---|%s\n", strings.Join(sideNames, " | "), strings.Repeat("---|", len(sideNames)))
	for _, suite := range suites {
		fmt.Fprintf(&b, "| %s |", suite)
		for _, side := range sideNames {
			run, pass := 0, 0
			for _, r := range rows {
				if suiteOf(r.Package) == suite && r.Results[side] != "" {
					run++
					if r.Results[side] == passed {
						pass++
					}
				}
			}
			if run == 0 {
				fmt.Fprint(&b, " – |")
				continue
			}
			fmt.Fprintf(&b, " %d of %d |", pass, run)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

var marks = map[string]string{passed: passed, failed: "**failed**", skipped: skipped, "": "–"}

// writeTables writes the tables of the document, each between a comment with its name and a comment "end", and reports
// whether the document changed.
func writeTables(path string, rows []row) (changed bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	written := string(text)
	for _, name := range append([]string{"summary"}, suites...) {
		content := summary(rows)
		if name != "summary" {
			content = table(rows, name)
		}
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->"
		found := regexp.MustCompile(`(?s)` + begin + `.*?` + end).FindString(written)
		if found == "" {
			return false, fmt.Errorf("%s has no table %q", path, name)
		}
		written = strings.Replace(written, found, begin+content+end, 1)
	}
	if written == string(text) {
		return false, nil
	}
	return true, os.WriteFile(path, []byte(written), 0o644)
}
