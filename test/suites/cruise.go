package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// packageTimeout bounds a package of Liqo's suites.
const packageTimeout = 20 * time.Minute

// runPackage runs a package of Liqo's suites and returns what became of its specs. A failed spec is no error.
func (at place) runPackage(ctx context.Context, b built, p cruisePackage) ([]outcome, error) {
	if len(at.clusters) < p.clusters {
		at.say("%s, %s: not run, it needs %d clusters", at.name, p.name, p.clusters)
		return nil, nil
	}
	directory, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	if err := at.writeKubeconfigs(directory); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, packageTimeout)
	defer cancel()
	report := filepath.Join(directory, "report.json")
	c := exec.CommandContext(ctx, b.test(p), "-ginkgo.v", "-ginkgo.no-color", "-ginkgo.json-report="+report, "-test.timeout="+packageTimeout.String())
	c.Dir, c.Env = directory, append(os.Environ(), at.variables(b, directory)...)
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 30*time.Second
	log, err := os.Create(filepath.Join(at.logs, at.name+"-"+p.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	began := time.Now()
	ended := c.Run()
	text, err := os.ReadFile(report)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no report (%w); see %s", p.name, ended, log.Name())
	} else if err != nil {
		return nil, err
	}
	outcomes, err := readReport(text)
	at.say("%s, %s: %s in %s", at.name, p.name, summary(outcomes), time.Since(began).Round(time.Second))
	return outcomes, err
}

// variables are those of Liqo's test/e2e/testconsts.
func (at place) variables(b built, directory string) []string {
	return []string{
		"NAMESPACE=liqo", "CLUSTER_NUMBER=" + strconv.Itoa(len(at.clusters)), "KUBECONFIGDIR=" + directory, "LIQOCTL=" + b.liqoctl(),
		"INFRA=sandbox", "CNI=none", "POD_CIDR_OVERLAPPING=true",
	}
}

func (at place) writeKubeconfigs(directory string) error {
	for i, name := range at.clusters {
		text, err := os.ReadFile(at.Cluster(name).Kubeconfig())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, "liqo_kubeconf_"+strconv.Itoa(i+1)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// ginkgoReport is what is read of a report of Ginkgo (its types.Report).
type ginkgoReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		Failure                 struct{ Message string }
	}
}

// readReport returns the outcome of each spec, and of what is before and after all of them only if it failed.
func readReport(text []byte) ([]outcome, error) {
	var reports []ginkgoReport
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("report of Ginkgo: %w", err)
	}
	var outcomes []outcome
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType != "It" && s.State == resultPassed {
				continue
			}
			name := s.LeafNodeType
			if s.LeafNodeType == "It" {
				name = specName(s.ContainerHierarchyTexts, s.LeafNodeText)
			}
			outcomes = append(outcomes, outcome{Test: name, Result: result(s.State), Why: firstLines(s.Failure.Message)})
		}
	}
	return outcomes, nil
}

// specName joins the texts of a spec, without the one that all of Liqo's have.
func specName(containers []string, leaf string) string {
	var texts []string
	for _, text := range append(append([]string{}, containers...), leaf) {
		if text = strings.Join(strings.Fields(text), " "); text != "Liqo E2E" && text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " / ")
}

// result maps a state of Ginkgo; what was interrupted, timed out or panicked has failed.
func result(state string) string {
	switch state {
	case resultPassed, resultSkipped:
		return state
	case "pending":
		return resultSkipped
	}
	return resultFailed
}

// firstLines is the beginning of a failure's message.
func firstLines(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	const most = 200
	if len(message) > most {
		return strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
