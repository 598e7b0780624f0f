package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

// plugin runs the program under the name by which kubectl finds plugins, with a kubeconfig of the broker's cluster.
type plugin struct{ path, kubeconfig string }

func (c *catalogued) plugin(t *testing.T) plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-broker")
	require.NoError(t, os.Symlink(c.Binary(), path))
	return plugin{path: path, kubeconfig: c.broker.Kubeconfig()}
}

// run returns the output and the exit code.
func (p plugin) run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (p plugin) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := p.run(t.Context(), args...)
	require.Equal(t, 0, code, "%v: %s", args, errs)
	return out
}

// commands checks the output and the effects of the commands against the API.
func (c *catalogued) commands(t *testing.T) {
	p := c.plugin(t)
	var providers []string
	for i := range c.providers {
		providers = append(providers, "providercluster.brokering.liqo.io/"+c.providers[i].Name)
	}
	assert.Equal(t, providers, strings.Fields(p.must(t, "get", "providers", "-o", "name")))
	var list brokeringv1alpha1.ProviderClusterList
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "get", "providers", "-o", "json")), &list))
	require.Len(t, list.Items, len(providers))

	atBroker := c.consumers[0].RemoteNamespace(c.mine)
	var found corev1.PodList
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "get", "placements", "-n", atBroker, "-o", "json")), &found))
	want, err := pods(t.Context(), c.broker, atBroker)
	require.NoError(t, err)
	names := func(list []corev1.Pod) (names []string) {
		for i := range list {
			names = append(names, list[i].Name+" "+list[i].Labels[brokeringv1alpha1.ProviderLabel])
		}
		slices.Sort(names)
		return names
	}
	assert.Equal(t, names(want), names(found.Items))
	assert.Contains(t, p.must(t, "explain", "-n", atBroker, "mine-0"), "chosen")

	// Errors.
	_, errs, code := p.run(t.Context(), "enable", "nosuch")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "(NotFound)")

	// enable and disable, for all consumers and for one.
	p.must(t, "disable", "provider1")
	assert.Equal(t, ptr.To(false), c.providerOf(t, "provider1").Spec.Enabled)
	p.must(t, "enable", "provider1")
	assert.Equal(t, ptr.To(true), c.providerOf(t, "provider1").Spec.Enabled)
	p.must(t, "disable", "provider1", "--consumer", c.consumers[1].Name)
	chosen, err := orchestrator.Get(t.Context(), c.broker.Client, c.consumers[1].Name)
	require.NoError(t, err)
	assert.False(t, chosen.Has("provider1"))
	p.must(t, "enable", "provider1", "--consumer", c.consumers[1].Name)

	c.drains(t, p)
}

// drains checks that the command ends once the provider runs none of the pods.
func (c *catalogued) drains(t *testing.T, p plugin) {
	t.Helper()
	from := c.providers[1]
	c.pod(t, c.consumers[1], c.theirs, "drained", "true")
	eventually(t, patient, func(ctx context.Context) error {
		return allRunning(ctx, c.consumers[1], c.theirs, len(c.podsOf(t, c.theirs)))
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		_, _, _ = p.run(ctx, "uncordon", from.Name)
	})
	p.must(t, "drain", from.Name, "--timeout=60s")
	require.NoError(t, c.emptied(t.Context(), from.Name))
	assert.True(t, meta.IsStatusConditionTrue(c.providerOf(t, from.Name).Status.Conditions, brokeringv1alpha1.ProviderDrained))
	p.must(t, "uncordon", from.Name)
	assert.False(t, c.providerOf(t, from.Name).Spec.Drain)
	eventually(t, patient, func(context.Context) error {
		if left := meta.FindStatusCondition(c.providerOf(t, from.Name).Status.Conditions, brokeringv1alpha1.ProviderDrained); left != nil {
			return fmt.Errorf("the condition Drained is still %s", left.Status)
		}
		return nil
	})
}

// podsOf are the pods of the second consumer's namespace.
func (c *catalogued) podsOf(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	list, err := pods(t.Context(), c.consumers[1], namespace)
	require.NoError(t, err)
	return list
}

// emptied returns nil if a provider has no pod of either consumer, by its own API.
func (c *catalogued) emptied(ctx context.Context, provider string) error {
	for i, namespace := range []string{c.mine, c.theirs} {
		at := c.broker.RemoteNamespace(c.consumers[i].RemoteNamespace(namespace))
		list, err := pods(ctx, c.Cluster(provider), at)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			return fmt.Errorf("%s still has %d pods in %s", provider, len(list), at)
		}
	}
	return nil
}
