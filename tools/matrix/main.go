// Command matrix keeps the results of make matrix in test/matrix.json, and writes them into a table of
// docs/compatibility.md: a row for each group of tests, a column for each run. The runs are files of gotestsum, named after
// versions: dist/matrix/LIQO=v1.1.2.jsonl. Columns that were not run stay.
//
//	matrix -directory=..
//
// It fails, after it wrote the table, if a test failed, or if a run lacks a group.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	resultsDir = "dist/matrix"
	recordFile = "test/matrix.json"
	document   = "docs/compatibility.md"
	// begin and end are comments of the document around the table.
	begin = "<!-- table: matrix -->\n"
	end   = "<!-- end -->"
)

// wanted returns the groups that each run has.
func wanted() []string {
	return []string{
		"TestFederation/chain", "TestFederation/faults", "TestParityOurs", "TestParityStock",
		"TestStockConsumer/the_guard_and_the_manifests",
	}
}

func main() {
	directory := flag.String("directory", ".", "the root of the repository")
	flag.Parse()
	if err := write(*directory); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// run maps a group of tests to its tests: whether each passed.
type run map[string]map[string]bool

// count is how many tests of a group were run, and passed.
type count struct {
	Passed int `json:"passed"`
	Run    int `json:"run"`
}

// write keeps the results of the last runs, and writes the table.
func write(directory string) error {
	files, err := filepath.Glob(filepath.Join(directory, resultsDir, "*.jsonl"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no results: run make matrix", resultsDir)
	}
	record := map[string]map[string]count{}
	before, err := os.ReadFile(filepath.Join(directory, recordFile))
	if err == nil {
		err = json.Unmarshal(before, &record)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", recordFile, err)
	}
	var failed []error
	for _, name := range files {
		version := strings.TrimSuffix(filepath.Base(name), ".jsonl")
		r, err := readFile(name)
		if err != nil {
			return err
		}
		failed = append(failed, faults(version, r)...)
		record[version] = counts(r)
	}
	after, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, recordFile), append(after, '\n'), 0o600); err != nil {
		return err
	}
	return errors.Join(append(failed, writeTable(filepath.Join(directory, document), record))...)
}

// faults returns the tests of a run that failed, and the groups that it lacks.
func faults(version string, r run) (found []error) {
	for _, group := range wanted() {
		if len(r[group]) == 0 {
			found = append(found, fmt.Errorf("%s: no test of %s was run", version, group))
		}
	}
	for _, group := range slices.Sorted(maps.Keys(r)) {
		for _, test := range slices.Sorted(maps.Keys(r[group])) {
			if !r[group][test] {
				found = append(found, fmt.Errorf("%s: %s failed", version, test))
			}
		}
	}
	return found
}

func counts(r run) map[string]count {
	of := map[string]count{}
	for group, tests := range r {
		c := count{Run: len(tests)}
		for _, ok := range tests {
			if ok {
				c.Passed++
			}
		}
		of[group] = c
	}
	return of
}

func writeTable(path string, record map[string]map[string]count) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no table between %q and %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+table(record)+end+after), 0o600)
}

func readFile(name string) (r run, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if r, err = read(file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// read returns the tests without subtests. The group of a subtest is the test two levels above, or the one above it:
// TestFederation/chain for TestFederation/chain/a_Service_spans, TestParityOurs for TestParityOurs/events.
func read(in io.Reader) (run, error) {
	passed := map[string]bool{}
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if err := note(passed, line); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			return grouped(passed), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// note adds an event of `go test -json`. A test that began and did not end has failed.
func note(passed map[string]bool, line []byte) error {
	var e struct{ Action, Test string }
	if err := json.Unmarshal(line, &e); err != nil || e.Test == "" {
		return err
	}
	switch e.Action {
	case "run", "pass", "fail":
		passed[e.Test] = e.Action == "pass"
	case "skip":
		delete(passed, e.Test)
	}
	return nil
}

func grouped(passed map[string]bool) run {
	r := run{}
	for test, ok := range passed {
		// A test with subtests counts only if it failed by itself.
		subtests, explained := false, false
		for other, subtestOK := range passed {
			if strings.HasPrefix(other, test+"/") {
				subtests, explained = true, explained || !subtestOK
			}
		}
		if subtests && (ok || explained) {
			continue
		}
		parts := strings.Split(test, "/")
		group := strings.Join(parts[:max(1, min(2, len(parts)-1))], "/")
		if r[group] == nil {
			r[group] = map[string]bool{}
		}
		r[group][test] = ok
	}
	return r
}

// table returns the Markdown table: how many tests of each group passed in each run.
func table(record map[string]map[string]count) string {
	groups := map[string]bool{}
	for _, of := range record {
		for group := range of {
			groups[group] = true
		}
	}
	versions := slices.Sorted(maps.Keys(record))
	var b strings.Builder
	fmt.Fprintf(&b, "| tests | %s |\n|---|%s\n", strings.Join(versions, " | "), strings.Repeat("---|", len(versions)))
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "| `%s` |", group)
		for _, version := range versions {
			if c := record[version][group]; c.Run > 0 {
				fmt.Fprintf(&b, " %d of %d |", c.Passed, c.Run)
			} else {
				fmt.Fprint(&b, " – |")
			}
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
