package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Names of the suites.
const (
	suiteLiqo     = "liqo"
	suiteKubelet  = "virtual-kubelet"
	suiteVersions = "versions"
)

// columns are those of the table of a suite.
func columns(suite string) []string {
	if suite == suiteVersions {
		return versionNames()
	}
	return sideNames()
}

// options of a run.
type options struct {
	suites, sides, packages, versions, results, logs string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("suites", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.suites, "suites", "", "the suites to run, separated by commas: "+
		strings.Join([]string{suiteLiqo, suiteKubelet, suiteVersions}, ", ")+"; default all")
	flags.StringVar(&o.sides, "sides", "", "the sides to run them on, separated by commas: "+strings.Join(sideNames(), ", ")+"; default all")
	flags.StringVar(&o.packages, "packages", "", "the packages of Liqo's suites, separated by commas; default all that can be run")
	flags.StringVar(&o.versions, "versions", "", "the versions for the end-to-end suites, separated by commas: "+
		strings.Join(versionNames(), ", ")+"; default all")
	flags.StringVar(&o.results, "results", "suites/results.json", "the file that keeps the results")
	flags.StringVar(&o.logs, "logs", "../dist/suites", "the directory that gets what the suites print")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := slices.DeleteFunc(sides(), func(s side) bool { return !named(o.sides, s.name) })
	if len(chosen) == 0 {
		return fmt.Errorf("-sides=%s: use some of %s", o.sides, strings.Join(sideNames(), ", "))
	}
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return err
	}
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "[%6.1fs] "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
	}
	if named(o.suites, suiteLiqo) || named(o.suites, suiteKubelet) {
		if err := runAll(ctx, o, chosen, say); err != nil {
			return err
		}
	}
	for _, v := range versions() {
		if !named(o.suites, suiteVersions) || !named(o.versions, v.name) {
			continue
		}
		outcomes, err := runVersion(ctx, o, v, say)
		if err != nil {
			return err
		}
		if err := keep(o.results, suiteVersions, "", v.name, outcomes); err != nil {
			return err
		}
	}
	return nil
}

// runAll runs the suites on all sides. Those with the same federation share it.
func runAll(ctx context.Context, o options, chosen []side, say func(string, ...any)) error {
	for len(chosen) > 0 {
		same := 1
		for same < len(chosen) && chosen[same].federation == chosen[0].federation {
			same++
		}
		if err := runSides(ctx, o, chosen[:same], say); err != nil {
			return err
		}
		chosen = chosen[same:]
	}
	return nil
}

// named reports whether a list separated by commas has the name; an empty list has all.
func named(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// runSides runs the suites on sides of one federation, and keeps the results after each.
func runSides(ctx context.Context, o options, sides []side, say func(string, ...any)) (err error) {
	suites, err := build(ctx, o, say)
	if err != nil {
		return err
	}
	federation, err := start(ctx, sides[0].federation, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, federation.Down()) }()
	for _, s := range sides {
		at := place{side: s, Sandbox: federation, logs: o.logs, say: say}
		if named(o.suites, suiteLiqo) {
			for _, p := range suites.packages {
				outcomes, err := at.runPackage(ctx, suites, p)
				if err != nil {
					return err
				}
				if err := keep(o.results, suiteLiqo, p.name, s.name, outcomes); err != nil {
					return err
				}
			}
		}
		if named(o.suites, suiteKubelet) && s.node != "" {
			outcomes, err := at.runKubelet(ctx)
			if err != nil {
				return err
			}
			if err := keep(o.results, suiteKubelet, "", s.name, outcomes); err != nil {
				return err
			}
		}
	}
	return nil
}
