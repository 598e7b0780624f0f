package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/docs"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// documented runs the commands of docs/operating.md that are marked for it, by a shell and kubectl, each in its
// cluster. If the document shows an output, the output must match. All other commands must succeed.
func (c *catalogued) documented(t *testing.T) {
	// The examples use this pod.
	require.NoError(t, c.consumers[0].Offload(t.Context(), "shop"))
	t.Cleanup(func() { c.withdraw(t, c.consumers[0], "shop") })
	c.pod(t, c.consumers[0], "shop", "web-0", "true")
	eventually(t, patient, func(ctx context.Context) error { return allRunning(ctx, c.consumers[0], "shop", 1) })

	shell := c.shell(t)
	document, err := docs.Read("../../docs/operating.md")
	require.NoError(t, err)
	ran := 0
	for i := range document.Blocks {
		b := &document.Blocks[i]
		cluster, ok := strings.CutPrefix(b.RunBy, docs.RunBySandbox)
		if !ok {
			continue
		}
		var printed strings.Builder
		for _, command := range b.Commands() {
			ran++
			out, err := shell(t, c.Cluster(cluster), command)
			if b.Language != "console" {
				require.NoError(t, err, "line %d: %s\n%s", b.Line, command, out)
			}
			printed.WriteString("$ " + command + "\n" + out)
		}
		if b.Language == "console" {
			require.Equal(t, b.Text, printed.String(), "line %d", b.Line)
		}
	}
	require.Positive(t, ran)
	// The upgrade of the document applies the guard as it is in deploy/, which allows no claims of this federation's classes.
	require.NoError(t, c.broker.ApplyManifests(t.Context(), "guard.yaml"))
	// The program is a plugin of kubectl.
	table, err := shell(t, c.broker, "kubectl broker get providers")
	require.NoError(t, err)
	require.Contains(t, table, "provider1")
}

// shell returns a function that runs a command in a shell that has deploy/, kubectl and its plugin, and a kubeconfig of
// a cluster.
func (c *catalogued) shell(t *testing.T) func(*testing.T, *sandbox.Cluster, string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	deploy, err := filepath.Abs("../../deploy")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(deploy, filepath.Join(dir, "deploy")))
	return func(t *testing.T, cluster *sandbox.Cluster, command string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-eo", "pipefail", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(), "HOME="+dir, "PATH="+c.Tools()+":"+os.Getenv("PATH"))
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return string(out), err
	}
}
