package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Results of a test.
const (
	resultPassed  = "passed"
	resultFailed  = "failed"
	resultSkipped = "skipped"
)

// outcome is that of one test on one side.
type outcome struct {
	Test   string
	Result string
	// Why is the beginning of the failure's message.
	Why string
}

// row is a test on all sides.
type row struct {
	Suite   string `json:"suite"`
	Package string `json:"package,omitempty"`
	Test    string `json:"test"`
	// Results is by the name of the side.
	Results map[string]string `json:"results"`
	// Whys are the beginnings of failures, by the name of the side.
	Whys map[string]string `json:"whys,omitempty"`
}

// summary counts outcomes.
func summary(outcomes []outcome) string {
	count := map[string]int{}
	for _, o := range outcomes {
		count[o.Result]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", count[resultPassed], count[resultFailed], count[resultSkipped])
}

// keep replaces in the file what a package of a suite gave on one side.
func keep(path, suite, pkg, side string, outcomes []outcome) error {
	rows, err := readResults(path)
	if err != nil {
		return err
	}
	return writeResults(path, merge(rows, suite, pkg, side, outcomes))
}

// merge replaces what a package of a suite gave on one side. Rows that have no side any more are left out.
func merge(rows []row, suite, pkg, side string, outcomes []outcome) []row {
	for i := range rows {
		if rows[i].Suite == suite && rows[i].Package == pkg {
			delete(rows[i].Results, side)
			delete(rows[i].Whys, side)
		}
	}
	for _, o := range outcomes {
		i := slices.IndexFunc(rows, func(r row) bool { return r.Suite == suite && r.Package == pkg && r.Test == o.Test })
		if i < 0 {
			i = len(rows)
			rows = append(rows, row{Suite: suite, Package: pkg, Test: o.Test, Results: map[string]string{}})
		}
		rows[i].Results[side] = o.Result
		if o.Why != "" {
			if rows[i].Whys == nil {
				rows[i].Whys = map[string]string{}
			}
			rows[i].Whys[side] = o.Why
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return len(r.Results) == 0 })
	slices.SortStableFunc(rows, func(a, b row) int { return order(a) - order(b) })
	return rows
}

// order sorts rows as the suites are run.
func order(r row) int {
	switch r.Suite {
	case suiteKubelet:
		return len(cruise)
	case suiteVersions:
		return len(cruise) + 1
	}
	return slices.IndexFunc(cruise, func(p cruisePackage) bool { return p.name == r.Package })
}

func readResults(path string) (rows []row, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// writeResults writes one line for each test, so that differences can be read.
func writeResults(path string, rows []row) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for i, r := range rows {
		b.WriteString([]string{"[\n", ","}[min(i, 1)])
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	b.WriteString("]\n")
	return os.WriteFile(path, b.Bytes(), 0o600)
}
