// Command durations runs the targets of make that make up the tests, measures them, and reports the slowest tests, the
// time of each step and the total. It warns about steps and tests that are slower than in test/durations.json, the
// latest record that is kept in the repository.
//
//	durations run -directory=.. unit e2e    runs make unit and make e2e, and reports
//	durations record -directory=..          keeps the durations of the last run in test/durations.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// resultsDir has the results of the last run: gotestsum's files, which the Makefile writes, and steps.json.
	resultsDir = "dist/durations"
	stepsFile  = "steps.json"
	// recordFile is kept in the repository.
	recordFile = "test/durations.json"
	slowest    = 20
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "durations:", err)
		os.Exit(1)
	}
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("no command: use run or record")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	directory := flags.String("directory", ".", "the root of the repository")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "run":
		return runSteps(ctx, *directory, flags.Args(), stdout, stderr)
	case "record":
		return writeRecord(*directory, stdout)
	}
	return fmt.Errorf("unknown command %q: use run or record", args[0])
}

// step is a target of make and its duration in seconds.
type step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// runSteps runs the targets of make one after the other, until one fails, and reports.
func runSteps(ctx context.Context, directory string, targets []string, stdout, stderr io.Writer) error {
	results := filepath.Join(directory, resultsDir)
	if err := os.RemoveAll(results); err != nil {
		return err
	}
	if err := os.MkdirAll(results, 0o750); err != nil {
		return err
	}
	var steps []step
	var failed error
	for _, target := range targets {
		began := time.Now()
		failed = runTarget(ctx, directory, target, stdout, stderr)
		steps = append(steps, step{Name: target, Seconds: seconds(time.Since(began))})
		if failed != nil {
			break
		}
	}
	if err := writeJSON(filepath.Join(results, stepsFile), steps); err != nil {
		return err
	}
	return errors.Join(failed, reportTo(directory, stdout))
}

func runTarget(ctx context.Context, directory, target string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", target) //nolint:gosec // The Makefile names the targets.
	cmd.Dir, cmd.Stdout, cmd.Stderr = directory, stdout, stderr
	// The commands handle an interrupt themselves, and may have to clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	return nil
}

// reportTo reports the last run.
func reportTo(directory string, out io.Writer) error {
	now, err := lastRun(filepath.Join(directory, resultsDir))
	if err != nil {
		return err
	}
	var before record
	err = readJSON(filepath.Join(directory, recordFile), &before)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return report(out, now, before)
}

// writeRecord writes the durations of the last run into the repository.
func writeRecord(directory string, out io.Writer) error {
	now, err := lastRun(filepath.Join(directory, resultsDir))
	if err != nil {
		return fmt.Errorf("%w: run make test first", err)
	}
	if err := writeJSON(filepath.Join(directory, recordFile), recordOf(now)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "recorded in", recordFile)
	return err
}
