package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// packageTimeout bounds a package.
const packageTimeout = 15 * time.Minute

// cruisePackage is a package of Liqo's test/e2e/cruise, and the number of clusters that it needs.
type cruisePackage struct {
	name     string
	clusters int
}

// cruise has the packages that need neither packets, nor volumes, nor containers that really run. The last ones may
// leave something behind when they fail: a drained tenant, or a VirtualNode.
var cruise = []cruisePackage{
	{"verifycertrenewal", 2},
	{"clusterlabels", 3},
	{"creationremotenamespace", 2},
	{"conflictremotenamespace", 3},
	{"unoffload", 2},
	{"offloadingpolicies", 2},
	{"multiplevirtualnodes", 3},
	{"resourceenforcement", 2},
	{"reflection", 2},
}

// build compiles Liqo's suites and liqoctl in Liqo's module, with Liqo's versions of its dependencies, unless they are
// in the cache. It returns the directory of the programs.
func build(ctx context.Context, say func(string, ...any)) (string, error) {
	cache, err := sandbox.CacheDir()
	if err != nil {
		return "", err
	}
	directory := filepath.Join(cache, "suites", "liqo-"+sandbox.LiqoVersion)
	programs, tests := []string{"liqoctl"}, []string{"test", "-c"}
	for _, p := range cruise {
		programs, tests = append(programs, p.name+".test"), append(tests, "./test/e2e/cruise/"+p.name)
	}
	if !slices.ContainsFunc(programs, func(program string) bool {
		_, err := os.Stat(filepath.Join(directory, program))
		return err != nil
	}) {
		return directory, nil
	}
	say("building Liqo's suites (kept in %s)", directory)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	source, err := module(ctx, "Dir", "github.com/liqotech/liqo")
	if err != nil {
		return "", err
	}
	for _, command := range [][]string{{"build", "./cmd/liqoctl"}, tests} {
		c := exec.CommandContext(ctx, "go", slices.Insert(command, 1, "-ldflags=-s -w", "-o", directory+"/")...)
		c.Dir = source
		if printed, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", c, err, printed)
		}
	}
	return directory, nil
}

// module returns a field of a module in the test module's build list, as go list has it.
func module(ctx context.Context, field, path string) (string, error) {
	printed, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{."+field+"}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", field, path, err)
	}
	return strings.TrimSpace(string(printed)), nil
}

// runLiqo runs a package of Liqo's suites and returns the outcomes of its specs. A failed spec is not an error.
func (at place) runLiqo(ctx context.Context, programs string, p cruisePackage) ([]outcome, error) {
	if p.name == "reflection" {
		at.metrics.Lock() // It forwards port 5872 of this machine.
		defer at.metrics.Unlock()
	}
	directory, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	for i, name := range at.clusters {
		text, err := os.ReadFile(at.Cluster(name).Kubeconfig())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(directory, "liqo_kubeconf_"+strconv.Itoa(i+1)), text, 0o600); err != nil {
			return nil, err
		}
	}
	c := at.command(ctx, filepath.Join(programs, p.name+".test"))
	c.Dir = directory
	// These are all variables in Liqo's test/e2e/testconsts.
	c.Env = append(os.Environ(), "NAMESPACE=liqo", "CLUSTER_NUMBER="+strconv.Itoa(len(at.clusters)), "KUBECONFIGDIR="+directory,
		"LIQOCTL="+filepath.Join(programs, "liqoctl"), "INFRA=sandbox", "CNI=none", "POD_CIDR_OVERLAPPING=true")
	return at.runGinkgo(p.name, packageTimeout, c)
}

// runGinkgo runs a Ginkgo suite in its command's directory, where the report is written. A failed spec is not an error, a
// suite that was not done in time is.
func (at place) runGinkgo(pkg string, timeout time.Duration, c *exec.Cmd) ([]outcome, error) {
	report := filepath.Join(c.Dir, "report.json")
	c.Args = append(c.Args, "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.json-report="+report, "--ginkgo.timeout="+timeout.String())
	log, err := os.Create(at.logFile(pkg)) // A package may take an hour: people read its output meanwhile.
	if err != nil {
		return nil, err
	}
	c.Stdout, c.Stderr = log, log
	ended := c.Run()
	if err := log.Close(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: no report: %w (%w)", at.name, pkg, err, ended)
	}
	return readReport(text)
}

// command returns a command that is asked to end when ctx does.
func (at place) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 30*time.Second
	return c
}

// readReport reads a report of Ginkgo (its types.Report). It returns the outcome of each spec, and of the setup and
// teardown of the suite only if they failed. Interrupted, timed out and panicked specs count as failed.
func readReport(text []byte) (outcomes []outcome, err error) {
	var reports []struct {
		SpecialSuiteFailureReasons []string
		SpecReports                []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("report of Ginkgo: %w", err)
	}
	for _, r := range reports {
		// The specs that were left have no outcome (internal/suite.go of Ginkgo).
		if slices.Contains(r.SpecialSuiteFailureReasons, "Suite Timeout Elapsed") {
			return nil, errors.New("the suite was not done in time")
		}
		for _, s := range r.SpecReports {
			o := outcome{Test: s.LeafNodeType, Result: failed, Why: s.Failure.Message}
			if s.State == passed || s.State == skipped {
				o.Result = s.State
			}
			if s.LeafNodeType == "It" {
				texts := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " / ")
				o.Test = strings.TrimPrefix(strings.Join(strings.Fields(texts), " "), "Liqo E2E / ") // The prefix of all of Liqo's specs.
			} else if o.Result != failed {
				continue
			}
			outcomes = append(outcomes, o)
		}
	}
	return outcomes, nil
}
