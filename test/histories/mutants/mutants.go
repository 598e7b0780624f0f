// Command mutants brings faults back into the broker, one after the other, and shows which of them the histories find.
//
//	go run ./histories/mutants [-only text] [-histories 10000]
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

// mutant is one change of the broker. Old occurs once in the file.
type mutant struct {
	name, file, old, new string
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
	only := flags.String("only", "", "try those with this in their names")
	histories := flags.Uint64("histories", 10_000, "how many histories each has to be found in")
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
	for _, m := range mutants() {
		if !strings.Contains(m.name, *only) {
			continue
		}
		began := time.Now()
		found, err := m.try(ctx, root, dir, *histories)
		if err == nil && found == "" {
			err = fmt.Errorf("not found in %d histories", *histories)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			found = "ERROR " + err.Error()
		}
		fmt.Fprintf(out, "%-70s %6s  %.150s\n", m.name, time.Since(began).Round(time.Second), found)
	}
	return errors.Join(errs...)
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

// violation is what a failed test says first.
var violation = regexp.MustCompile(`seed \d+: .*|panic: .*`)

// try runs histories with the fault, and returns what they found; "" is nothing.
func (m *mutant) try(ctx context.Context, root, dir string, histories uint64) (string, error) {
	text, err := m.mutated(root)
	if err != nil {
		return "", err
	}
	changed, overlay, binary := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "histories.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./histories")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	output, err := exec.CommandContext(ctx, binary, "-test.run=^TestHistories$", "-test.timeout=0", "-shorten=false", "-reports=1",
		fmt.Sprint("-histories=", histories)).CombinedOutput()
	switch found := violation.Find(output); {
	case err == nil:
		return "", nil
	case found != nil:
		return string(found), nil
	default:
		return "", fmt.Errorf("%w: %.500s", err, output)
	}
}
