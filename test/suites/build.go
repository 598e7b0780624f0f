package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const liqoModule = "github.com/liqotech/liqo"

// cruise are the packages of Liqo's test/e2e/cruise that need neither packets, nor volumes, nor containers that really run, with
// the number of clusters that each needs.
var cruise = []cruisePackage{
	{"reflection", 2},
	{"offloadingpolicies", 2},
	{"resourceenforcement", 2},
	{"multiplevirtualnodes", 3},
	{"conflictremotenamespace", 2},
	{"creationremotenamespace", 2},
	{"clusterlabels", 3},
	{"unoffload", 2},
	{"verifycertrenewal", 2},
}

type cruisePackage struct {
	name     string
	clusters int
}

// built are the programs of Liqo's suites.
type built struct {
	directory string
	packages  []cruisePackage
}

func (b built) liqoctl() string             { return filepath.Join(b.directory, "liqoctl") }
func (b built) test(p cruisePackage) string { return filepath.Join(b.directory, p.name+".test") }

// build compiles Liqo's suites and liqoctl inside Liqo's module, with Liqo's choice of dependencies, unless the cache has them.
func build(ctx context.Context, o options, say func(string, ...any)) (built, error) {
	var b built
	if !named(o.suites, suiteLiqo) {
		return b, nil
	}
	for _, p := range cruise {
		if named(o.packages, p.name) {
			b.packages = append(b.packages, p)
		}
	}
	module, err := liqo(ctx)
	if err != nil {
		return b, err
	}
	cache, err := sandbox.CacheDir()
	if err != nil {
		return b, err
	}
	b.directory = filepath.Join(cache, "suites", "liqo-"+module.Version)
	if err := os.MkdirAll(b.directory, 0o755); err != nil {
		return b, err
	}
	if err := compile(ctx, module.Dir, b.directory, []string{"liqoctl"}, say, "build", "./cmd/liqoctl"); err != nil {
		return b, err
	}
	var programs []string
	command := []string{"test", "-c"}
	for _, p := range b.packages {
		programs, command = append(programs, filepath.Base(b.test(p))), append(command, "./test/e2e/cruise/"+p.name)
	}
	return b, compile(ctx, module.Dir, b.directory, programs, say, command...)
}

// module is what `go list -m -json` prints of one.
type module struct{ Version, Dir string }

// liqo finds the source of the version of Liqo that go.mod names.
func liqo(ctx context.Context) (m module, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-json", liqoModule).Output()
	if err != nil {
		return m, fmt.Errorf("go list -m %s: %w", liqoModule, err)
	}
	return m, json.Unmarshal(out, &m)
}

// compile has the Go command make programs in a directory, unless all are there. They are built aside and renamed.
func compile(ctx context.Context, source, directory string, programs []string, say func(string, ...any), command ...string) error {
	if !slices.ContainsFunc(programs, func(program string) bool {
		_, err := os.Stat(filepath.Join(directory, program))
		return err != nil
	}) {
		return nil
	}
	say("building %s (kept in %s)", strings.Join(programs, ", "), directory)
	aside, err := os.MkdirTemp(directory, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	c := exec.CommandContext(ctx, "go", slices.Insert(command, 1, "-ldflags=-s -w", "-o", aside+"/")...)
	c.Dir = source
	var printed bytes.Buffer
	c.Stdout, c.Stderr = &printed, &printed
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, &printed)
	}
	for _, program := range programs {
		if err := os.Rename(filepath.Join(aside, program), filepath.Join(directory, program)); err != nil {
			return err
		}
	}
	return nil
}
