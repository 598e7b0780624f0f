package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// versionTimeout bounds the end-to-end suites with one version of Liqo.
const versionTimeout = 50 * time.Minute

// version is one with which the end-to-end suites run. Its name is a column of a table.
type version struct{ name, liqo, kubernetes string }

func versions() []version {
	return []version{
		{"Liqo " + sandbox.LiqoVersion, sandbox.LiqoVersion, sandbox.KubernetesVersion},
		{"Liqo " + sandbox.LiqoV11Version, sandbox.LiqoV11Version, sandbox.KubernetesVersion},
		{"Kubernetes " + sandbox.KubernetesLaterVersion, sandbox.LiqoVersion, sandbox.KubernetesLaterVersion},
	}
}

func versionNames() (names []string) {
	for _, v := range versions() {
		names = append(names, v.name)
	}
	return names
}

// endToEnd are the suites of this repository that run with every version, as patterns of go test: a drop-in, a chain of three clusters,
// and a broker whose provider fails.
var endToEnd = []string{
	"^(TestParityOurs|TestLaterKubernetes)$",
	"^TestFederation$/^(side_by_side|chain|faults)$/" +
		"^(namespaces_of_consumers_are_offloaded|pods_show_the_addresses_that_lead_to_them|a_Service_spans_the_chain|" +
		"the_broker_offers_the_sum_of_the_providers|a_restart_moves_nothing|pods_leave_an_unreachable_provider)$",
}

// runVersion runs the end-to-end suites with a version. A failed test is no error.
func runVersion(ctx context.Context, o options, v version, say func(string, ...any)) ([]outcome, error) {
	var all []outcome
	for i, pattern := range endToEnd {
		outcomes, err := runEndToEnd(ctx, filepath.Join(o.logs, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(v.name, " ", "-"), i+1)), v, pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, outcomes...)
	}
	say("%s: %s", v.name, summary(all))
	return all, nil
}

func runEndToEnd(ctx context.Context, log string, v version, pattern string) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout="+versionTimeout.String(), "-run="+pattern, "./e2e")
	c.Env = append(os.Environ(), "LIQO="+v.liqo, "KUBERNETES="+v.kubernetes)
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, time.Minute
	printed, ended := c.Output()
	if err := os.WriteFile(log, printed, 0o600); err != nil {
		return nil, err
	}
	outcomes, err := readEvents(printed)
	if err == nil && len(outcomes) == 0 {
		err = fmt.Errorf("no test of %s ran with %s (%w); see %s", pattern, v.name, ended, log)
	}
	return scenarios(outcomes), err
}

// groups are the subtests of TestFederation that have the scenarios.
var groups = []string{"side_by_side", "chain", "faults"}

// scenarios leaves out the groups that scenarios are in, and the steps of which scenarios are made.
func scenarios(outcomes []outcome) (kept []outcome) {
	for _, o := range outcomes {
		name := o.Test
		for _, group := range groups {
			name = strings.TrimPrefix(name, group+"/")
		}
		if !slices.Contains(groups, name) && !strings.Contains(name, "/") {
			o.Test = strings.ReplaceAll(name, "_", " ")
			kept = append(kept, o)
		}
	}
	return kept
}
