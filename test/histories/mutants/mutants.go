// Command mutants brings faults back into the broker, one after the other, and shows which of them the histories find, or a
// unit test where histories cannot.
//
//	go run ./histories/mutants [-only text] [-from name] [-histories 10000] [-timeout 30m]
//
// It changes no file: the compiler gets the changed ones as an overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is one change of the broker, or of a model in the histories. Old occurs once in the file.
type mutant struct {
	name, file, old, new string
}

// tested is a mutant that 10,000 histories do not show: they do not judge how fast something happens, nor over which
// connection, and some faults need a history that is rarer. A unit test finds it.
type tested struct {
	mutant
	dir, test string
}

// layered is a fault that several parts guard against. The histories find it when none of them does.
type layered struct {
	name string
	all  []mutant // Of different files.
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants, and returns an error if one was not found, or could not be tried.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "try only mutants whose name contains this text")
	from := flags.String("from", "", "begin with the mutant of this name, to continue an earlier run")
	histories := flags.Uint64("histories", 10_000, "number of histories in which each mutant must be found")
	timeout := flags.Duration("timeout", 30*time.Minute, "timeout of the histories of each mutant")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs("..") // The main module, from that of the tests.
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var errs []error
	begun := *from == ""
	try := func(name string, run func(overlay string) (string, error), all ...mutant) {
		begun = begun || name == *from
		if !begun || !strings.Contains(name, *only) || ctx.Err() != nil {
			return
		}
		began := time.Now()
		found := ""
		overlay, err := overlayOf(root, dir, all)
		if err == nil {
			found, err = run(overlay)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			found = "ERROR " + err.Error()
		}
		fmt.Fprintf(out, "%-70s %6s  %.150s\n", name, time.Since(began).Round(time.Second), found)
	}
	happen := func(overlay string) (string, error) { return letHappen(ctx, overlay, dir, *histories, *timeout) }
	for _, m := range mutants() {
		try(m.name, happen, m)
	}
	for _, m := range layeredMutants() {
		try(m.name, happen, m.all...)
	}
	for _, m := range append(testedMutants(), realWorldMutants()...) {
		try(m.name, func(overlay string) (string, error) { return m.fails(ctx, root, overlay) }, m.mutant)
	}
	if !begun {
		errs = append(errs, fmt.Errorf("-from=%q: no such mutant", *from))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// mutated returns the file with the fault.
func (m *mutant) mutated(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times", m.file, m.old, n)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// overlayOf writes the files with the faults, and returns the overlay by which the compiler gets them.
func overlayOf(root, dir string, all []mutant) (string, error) {
	replace := map[string]string{}
	for i := range all {
		text, err := all[i].mutated(root)
		if err != nil {
			return "", err
		}
		changed := filepath.Join(dir, fmt.Sprintf("changed-%d.go", i))
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, all[i].file)] = changed
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// violation is what a failed test of histories says first.
var violation = regexp.MustCompile(`seed \d+: .*|panic: .*`)

// letHappen runs histories with a fault, and returns what they found. It is an error if they found nothing.
func letHappen(ctx context.Context, overlay, dir string, histories uint64, timeout time.Duration) (string, error) {
	binary := filepath.Join(dir, "histories.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./histories")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	output, err := exec.CommandContext(ctx, binary, "-test.run=^TestHistories$", fmt.Sprint("-test.timeout=", timeout),
		"-shorten=false", "-reports=1", fmt.Sprint("-histories=", histories)).CombinedOutput()
	switch found := violation.Find(output); {
	case err == nil:
		return "", fmt.Errorf("not found in %d histories", histories)
	case bytes.HasPrefix(found, []byte("panic: test timed out")):
		return "", fmt.Errorf("neither found nor finished after %s", timeout)
	case found != nil:
		return string(found), nil
	default:
		return "", fmt.Errorf("%w: %.500s", err, output)
	}
}

// fails runs the test with the fault, and returns that it failed. It is an error if it did not.
func (m *tested) fails(ctx context.Context, root, overlay string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-overlay", overlay, "-timeout=5m", "-run=^"+m.test+"$", ".")
	cmd.Dir = filepath.Join(root, m.dir)
	output, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return "", fmt.Errorf("not found by %s", m.test)
	case bytes.Contains(output, []byte("--- FAIL: "+m.test)), bytes.Contains(output, []byte("panic: test timed out")):
		return m.test + " fails", nil
	default:
		return "", fmt.Errorf("%w: %.500s", err, output)
	}
}
