package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// Files of this repository, relative to the module's directory.
const (
	resultsFile = "suites/results.json"
	document    = "../docs/compatibility.md"
	logs        = "../dist/suites"
)

func main() {
	r := new(runner)
	flag.Var(&r.sides, "sides", "the sides, separated by commas; default all: "+strings.Join(sideNames, ","))
	flag.Var(&r.packages, "packages", "the packages, separated by commas; default all: "+strings.Join(packages(), ","))
	together := flag.Int("together", 1, "number of federations, of four clusters each, to run at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := r.run(ctx, *together)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// choice is a flag with a list of names. An empty list means all of them.
type choice []string

func (c *choice) String() string { return strings.Join(*c, ",") }

func (c *choice) Set(value string) error {
	*c = nil
	if value != "" {
		*c = strings.Split(value, ",")
	}
	return nil
}

func (c *choice) has(name string) bool { return len(*c) == 0 || slices.Contains(*c, name) }

// runner runs suites in federations.
type runner struct {
	sides, packages choice
	// programs is the directory of Liqo's programs, e2e the path of Kubernetes' program.
	programs, e2e string
	// images are on the nodes of federations with containers.
	images map[string]sandbox.ContainerImage

	// metrics is held by the package reflection; starting while a federation starts, which uses all CPUs; kept while
	// the results file is written.
	metrics, starting, kept sync.Mutex
}

// run runs the chosen suites, writes the results and the document, and returns the faults of all results as an error.
func (r *runner) run(ctx context.Context, together int) (err error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	for _, name := range r.packages {
		if !slices.Contains(packages(), name) {
			return fmt.Errorf("-packages=%s: use some of %s", &r.packages, strings.Join(packages(), ","))
		}
	}
	for _, name := range r.sides {
		if !slices.Contains(sideNames, name) {
			return fmt.Errorf("-sides=%s: use some of %s", &r.sides, strings.Join(sideNames, ","))
		}
	}
	if slices.ContainsFunc(cruise, func(p cruisePackage) bool { return r.packages.has(p.name) }) {
		if r.programs, err = build(ctx, say); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(conformance, func(p conformancePackage) bool { return r.packages.has(p.name) }) {
		if r.e2e, err = buildConformance(ctx, say); err != nil {
			return err
		}
		agnhost, err := buildAgnhost(ctx, r.e2e, say)
		if err != nil {
			return err
		}
		source, err := module(ctx, "Dir", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		r.images = containerImages(agnhost, source)
	}
	var group errgroup.Group
	group.SetLimit(max(together, 1))
	for _, f := range federations() {
		f.sides = slices.DeleteFunc(f.sides, func(s side) bool { return !r.sides.has(s.name) })
		if len(f.sides) == 0 || !slices.ContainsFunc(f.packages(), r.packages.has) {
			continue
		}
		if err := sandbox.ContainersPossible(); f.containers && err != nil {
			if len(r.packages) > 0 {
				return fmt.Errorf("-packages=%s: %w", &r.packages, err)
			}
			say("%s is left out: %s", f.name, err)
			continue
		}
		group.Go(func() error { return r.runFederation(ctx, f) })
	}
	ended := group.Wait()
	rows, err := readResults(resultsFile)
	if err == nil {
		_, err = writeTables(document, rows)
	}
	found := faults(rows, notes)
	for _, fault := range found {
		say("%s", fault)
	}
	if len(found) > 0 {
		err = errors.Join(err, fmt.Errorf("%d results differ from the notes", len(found)))
	}
	return errors.Join(ended, err)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// runFederation runs the suites on the sides of a federation. If a package cannot be run, the others still are.
func (r *runner) runFederation(ctx context.Context, f federation) (err error) {
	r.starting.Lock()
	s, err := f.up(ctx, r.images, say)
	r.starting.Unlock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	var errs []error
	for _, side := range f.sides {
		at := place{side: side, Sandbox: s, metrics: &r.metrics}
		if side.node != "" && !f.containers {
			errs = append(errs, r.runPackage(ctx, at, kubeletSuite, packageTimeout, at.runKubelet))
		}
		if side.node != "" {
			for _, p := range conformance {
				if p.containers != f.containers {
					continue
				}
				errs = append(errs, r.runPackage(ctx, at, p.name, p.limit(), func(ctx context.Context) ([]outcome, error) {
					return at.runConformance(ctx, r.e2e, p)
				}))
			}
		}
		for _, p := range cruise {
			if !f.containers && len(side.clusters) >= p.clusters && p.name != side.without {
				errs = append(errs, r.runPackage(ctx, at, p.name, packageTimeout, func(ctx context.Context) ([]outcome, error) {
					return at.runLiqo(ctx, r.programs, p)
				}))
			}
		}
	}
	return errors.Join(errs...)
}

// runPackage runs a package on one side, if it is chosen, and stores the results of its tests.
func (r *runner) runPackage(ctx context.Context, at place, pkg string, timeout time.Duration,
	run func(context.Context) ([]outcome, error),
) error {
	if !r.packages.has(pkg) || ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute) // Ginkgo ends before, and writes its report.
	defer cancel()
	began := time.Now()
	outcomes, err := run(ctx)
	if err != nil {
		return err
	}
	r.kept.Lock()
	defer r.kept.Unlock()
	say("%s, %s: %d tests in %s", at.name, pkg, len(outcomes), time.Since(began).Round(time.Second))
	for _, o := range outcomes {
		if o.Result != passed {
			say("  %s %s: %s", o.Result, o.Test, strings.Join(strings.Fields(o.Why), " "))
		}
	}
	rows, err := readResults(resultsFile)
	if err != nil {
		return err
	}
	return writeResults(resultsFile, merge(rows, pkg, at.name, outcomes))
}
