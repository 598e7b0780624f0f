package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// measured is a run of the tests.
type measured struct {
	steps []step
	// tests maps the package and the name of a test to the seconds that the test took, without its subtests.
	tests map[string]float64
}

// lastRun reads the results of the last run.
func lastRun(directory string) (measured, error) {
	run := measured{tests: map[string]float64{}}
	if err := readJSON(filepath.Join(directory, stepsFile), &run.steps); err != nil {
		return run, err
	}
	files, err := filepath.Glob(filepath.Join(directory, "*.jsonl"))
	if err != nil {
		return run, err
	}
	for _, name := range files {
		if err := run.readFile(name); err != nil {
			return run, err
		}
	}
	return run, nil
}

func (m *measured) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := m.read(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// event is an event of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // In seconds.
}

// read adds the events that gotestsum wrote with --jsonfile. Tests of packages with cached results did not run.
func (m *measured) read(in io.Reader) error {
	type key struct{ pkg, test string }
	elapsed, ofSubtests, cached := map[key]float64{}, map[key]float64{}, map[string]bool{}
	reader := bufio.NewReader(in)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			switch {
			case e.Action == "output" && e.Test == "" && strings.HasSuffix(strings.TrimSpace(e.Output), "(cached)"):
				cached[e.Package] = true
			case e.Test != "" && (e.Action == "pass" || e.Action == "fail"):
				elapsed[key{e.Package, e.Test}] = e.Elapsed
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	for test, took := range elapsed {
		if i := strings.LastIndex(test.test, "/"); i >= 0 {
			ofSubtests[key{test.pkg, test.test[:i]}] += took
		}
	}
	for test, took := range elapsed {
		if cached[test.pkg] {
			continue
		}
		// Parallel subtests may together take longer than their parent test.
		m.tests[shortened(test.pkg)+" "+test.test] = round(max(0, took-ofSubtests[test]))
	}
	return nil
}

// shortened is a package without the module's host and owner.
func shortened(pkg string) string {
	_, path, found := strings.Cut(pkg, "/liqo-broker-vk/")
	if !found {
		return pkg
	}
	return path
}

func seconds(d time.Duration) float64 { return round(d.Seconds()) }

// round rounds to tenths: with more digits the record would change with every run.
func round(value float64) float64 { return math.Round(value*10) / 10 }

func writeJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o600)
}

func readJSON(name string, value any) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
