// Command check runs the checks for every commit: formatting, the linters for the packages that have changed since
// main, and the unit tests without -race, of which Go repeats only those that a change may affect.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// checker runs commands in a repository.
type checker struct {
	root           string
	stdout, stderr io.Writer
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	directory := flags.String("directory", ".", "the root of the repository")
	since := flags.String("since", "main", "the branch to compare changes with; the last commit if it does not exist")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs(*directory)
	if err != nil {
		return err
	}
	c := checker{root: root, stdout: stdout, stderr: stderr}
	began := time.Now()
	files, err := c.changed(ctx, *since)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d files have changed since %s\n", len(files), *since)
	if err := c.formatted(ctx, files); err != nil {
		return err
	}
	if err := c.lint(ctx, files); err != nil {
		return err
	}
	if err := c.test(ctx, files); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "make check: passed after %s\n", time.Since(began).Round(time.Second))
	return err
}

// changed returns the files that have changed since the current branch left the branch since, as paths from the root:
// committed, uncommitted, new and deleted files.
func (c checker) changed(ctx context.Context, since string) ([]string, error) {
	base, err := c.git(ctx, "merge-base", "HEAD", since)
	if err != nil { // The branch does not exist, for example in a clone of a single commit.
		base = "HEAD"
	}
	differ, err := c.git(ctx, "diff", "--name-only", "--no-renames", base)
	if err != nil {
		return nil, err
	}
	untracked, err := c.git(ctx, "ls-files", "--others", "--exclude-standard")
	return strings.Fields(differ + "\n" + untracked), err
}

func (c checker) git(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := c.command(ctx, "", &out, "git", args...)
	return strings.TrimSpace(out.String()), err
}

// formatted requires that gofmt has nothing to change.
func (c checker) formatted(ctx context.Context, files []string) error {
	args := []string{"-l"}
	for _, file := range files {
		if strings.HasSuffix(file, ".go") && c.exists(file) {
			args = append(args, file)
		}
	}
	if len(args) == 1 {
		return nil
	}
	var out bytes.Buffer
	if err := c.command(ctx, "", &out, "gofmt", args...); err != nil {
		return err
	}
	if out.Len() > 0 {
		return fmt.Errorf("not formatted by gofmt:\n%s", out.String())
	}
	return nil
}

// lint runs the linters for the packages that have changed.
func (c checker) lint(ctx context.Context, files []string) error {
	for _, module := range modules() {
		packages := packagesToLint(module, files, c.exists)
		if len(packages) == 0 {
			continue
		}
		fmt.Fprintln(c.stdout, "lint", module, strings.Join(packages, " "))
		// Other working trees may be checked at the same time.
		args := append([]string{"run", "--allow-parallel-runners", "--config", filepath.Join(c.root, ".golangci.yml")}, packages...)
		if err := c.tool(ctx, module, "golangci-lint", args...); err != nil {
			return fmt.Errorf("lint %s: %w", module, err)
		}
	}
	return nil
}

// test compiles all packages, and runs the unit tests.
func (c checker) test(ctx context.Context, files []string) error {
	for _, module := range modules() {
		if err := c.command(ctx, module, c.stdout, "go", "vet", "./..."); err != nil {
			return err
		}
	}
	for _, s := range suites() {
		args := []string{"--format=pkgname", "--format-hide-empty-pkg", "--hide-summary=skipped", "--"}
		if s.unseen(files) {
			args = append(args, "-count=1")
		}
		if err := c.tool(ctx, s.module, "gotestsum", append(args, s.packages...)...); err != nil {
			return fmt.Errorf("test %s: %w", s.module, err)
		}
	}
	return nil
}

// tool runs a tool of tools/go.mod.
func (c checker) tool(ctx context.Context, module, name string, args ...string) error {
	modfile := "-modfile=" + filepath.Join(c.root, "tools", "go.mod")
	return c.command(ctx, module, c.stdout, "go", append([]string{"tool", modfile, name}, args...)...)
}

func (c checker) command(ctx context.Context, dir string, stdout io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // The commands are those of this package.
	cmd.Dir, cmd.Stdout = filepath.Join(c.root, dir), stdout
	var problem bytes.Buffer
	cmd.Stderr = io.MultiWriter(&problem, c.stderr)
	if stdout != c.stdout { // The output is read here, and so are the error messages.
		cmd.Stderr = &problem
	}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) && stdout != c.stdout {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	} else if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c checker) exists(file string) bool {
	_, err := os.Stat(filepath.Join(c.root, file))
	return err == nil
}
