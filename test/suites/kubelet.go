package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// kubeletSuite is the name of virtual-kubelet's suite among the packages, and of the namespace for its pods.
const kubeletSuite = "virtual-kubelet"

// runKubelet runs virtual-kubelet's suite against the node of this side. A failed test is not an error.
func (at place) runKubelet(ctx context.Context) ([]outcome, error) {
	cluster := at.Cluster(sandbox.Broker)
	if err := cluster.Offload(ctx, kubeletSuite); err != nil {
		return nil, err
	}
	api, err := apiOf(cluster)
	if err != nil {
		return nil, err
	}
	kubeconfig, closed, err := api.serve()
	if err != nil {
		return nil, err
	}
	defer closed()
	c := at.command(ctx, "go", "test", "-json", "-count=1", "-timeout="+packageTimeout.String(), "./suites/kubelet")
	c.Env = append(os.Environ(), "SUITE_KUBECONFIG="+kubeconfig, "SUITE_NODE="+at.node, "SUITE_NAMESPACE="+kubeletSuite)
	printed, ended := c.CombinedOutput()
	if err := os.WriteFile(at.logFile(kubeletSuite), printed, 0o644); err != nil {
		return nil, err
	}
	outcomes, err := readEvents(printed)
	if err == nil && len(outcomes) == 0 {
		return nil, fmt.Errorf("%s, %s: no test was run (%w)", at.name, kubeletSuite, ended)
	}
	return outcomes, err
}

// sourceLine matches the prefix that testing adds to the output of a test.
var sourceLine = regexp.MustCompile(`^\w+\.go:\d+: `)

// readEvents reads the output of go test -json, and returns the outcome of each test of the suite. The reason for a
// failure is the last line of the test's output.
func readEvents(printed []byte) ([]outcome, error) {
	var outcomes []outcome
	last := map[string]string{}
	results := map[string]string{"pass": passed, "fail": failed, "skip": skipped}
	lines := bufio.NewScanner(bytes.NewReader(printed))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // Output that does not belong to a test, such as a warning of the Go command.
		}
		_, name, below := strings.Cut(event.Test, "/")
		if !below {
			continue
		}
		if text := strings.TrimSpace(event.Output); event.Action == "output" && text != "" && !strings.HasPrefix(text, "---") {
			last[name] = sourceLine.ReplaceAllString(text, "")
		}
		if r := results[event.Action]; r != "" {
			outcomes = append(outcomes, outcome{Test: name, Result: r, Why: last[name]})
		}
	}
	return outcomes, lines.Err()
}
