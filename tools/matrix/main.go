// Command matrix writes the results of make matrix into a table of a document: a row for each group of tests, a column
// for each run. The runs are the files of gotestsum in a directory, named after versions: LIQO=v1.1.2.jsonl.
//
//	matrix -results=dist/matrix -document=docs/compatibility.md
//
// It fails, after it wrote the table, if a test failed or a run has none.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Comments of the document around the table.
const (
	begin = "<!-- table: matrix -->\n"
	end   = "<!-- end -->"
)

func main() {
	results := flag.String("results", "dist/matrix", "the directory of gotestsum's files")
	document := flag.String("document", "docs/compatibility.md", "the document with the table")
	flag.Parse()
	if err := write(*results, *document); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// run maps a group of tests to its tests: whether each passed.
type run map[string]map[string]bool

// write writes the results below a directory into a document.
func write(results, document string) error {
	files, err := filepath.Glob(filepath.Join(results, "*.jsonl"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no results: run make matrix", results)
	}
	runs := map[string]run{}
	var failed []error
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		version := strings.TrimSuffix(filepath.Base(name), ".jsonl")
		runs[version], err = read(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(runs[version]) == 0 {
			failed = append(failed, fmt.Errorf("%s: it has no test", version))
		}
		for _, group := range slices.Sorted(maps.Keys(runs[version])) {
			for _, test := range slices.Sorted(maps.Keys(runs[version][group])) {
				if !runs[version][group][test] {
					failed = append(failed, fmt.Errorf("%s: %s failed", version, test))
				}
			}
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no table between %q and %q", document, begin, end)
	}
	if err := os.WriteFile(document, []byte(before+begin+table(runs)+end+after), 0o644); err != nil { //nolint:gosec // A document.
		return err
	}
	return errors.Join(failed...)
}

// read returns the tests without subtests. The group of a subtest is the test two levels above, or the one
// above it: TestFederation/chain for TestFederation/chain/a_Service_spans, TestParityOurs for TestParityOurs/events.
func read(in io.Reader) (run, error) {
	passed := map[string]bool{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			var e struct{ Action, Test string }
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, err
			}
			switch {
			case e.Test == "":
			case e.Action == "run", e.Action == "pass", e.Action == "fail":
				passed[e.Test] = e.Action == "pass" // A test that began and did not end has failed.
			case e.Action == "skip":
				delete(passed, e.Test)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
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
	return r, nil
}

// table returns the Markdown table: how many tests of each group passed in each run.
func table(runs map[string]run) string {
	groups := map[string]bool{}
	for _, r := range runs {
		for group := range r {
			groups[group] = true
		}
	}
	versions := slices.Sorted(maps.Keys(runs))
	var b strings.Builder
	fmt.Fprintf(&b, "| tests | %s |\n|---|%s\n", strings.Join(versions, " | "), strings.Repeat("---|", len(versions)))
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "| `%s` |", group)
		for _, version := range versions {
			tests := runs[version][group]
			passed := 0
			for _, ok := range tests {
				if ok {
					passed++
				}
			}
			if len(tests) == 0 {
				fmt.Fprint(&b, " – |")
				continue
			}
			fmt.Fprintf(&b, " %d of %d |", passed, len(tests))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
