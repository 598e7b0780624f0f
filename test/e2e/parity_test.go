package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/passed"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// The parity suite is one set of scenarios, run against Liqo's own virtual
// kubelet and against ours: what the stock one does, ours must do.

// TestParityStock does not depend on this repository's program. Once it has
// passed it runs again only when something of paritySources changes, or with
// STOCK=1.
func TestParityStock(t *testing.T) {
	cache, err := sandbox.CacheDir()
	require.NoError(t, err)
	stock, err := passed.Of(filepath.Join(cache, "passed"), "parity-stock"+liqoVersion(), append(parityFiles(), paritySources()...)...)
	require.NoError(t, err)
	when, err := stock.When()
	require.NoError(t, err)
	if !when.IsZero() && os.Getenv("STOCK") == "" {
		t.Skipf("passed at %s with the same versions, scenarios and sandbox (%s); STOCK=1 runs it again",
			when.Format(time.DateTime), stock.Path())
	}
	parity(t, sandbox.ImageStock)
	if !t.Failed() && allScenarios() {
		require.NoError(t, stock.Keep())
	}
}

func TestParityOurs(t *testing.T) { parity(t, sandbox.ImageOurs) }

// parityFiles are all files of this package that the parity suite needs.
func parityFiles() []string {
	return []string{
		"parity_test.go", "federation_test.go", "pods_test.go", "objects_test.go", "kubeletapi_test.go", "network_test.go",
		"disruption_test.go", "gpu_test.go",
	}
}

// paritySources are what else the outcome with Liqo's virtual kubelet depends on:
// the sandbox, with the versions that it builds, its dependencies, the calls of
// a kubelet, and what it installs from deploy/ in every cluster.
func paritySources() []string {
	return []string{
		"../sandbox", "../kubeletapi", "../go.mod",
		"../../deploy/virtual-kubelet-auth.yaml", "../../deploy/virtual-kubelet-addresses.yaml",
	}
}

// allScenarios reports whether -run and -skip leave no subtest out.
func allScenarios() bool {
	return !strings.Contains(flag.Lookup("test.run").Value.String(), "/") && flag.Lookup("test.skip").Value.String() == ""
}

// The suite compiles without any other file of this package, so that its result
// cannot depend on one.
func TestParityFilesAreAllThatParityNeeds(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"vet"}, parityFiles()...)...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func parity(t *testing.T, image string) {
	aside(t)
	f := start(t, image)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *federation)
	}{
		// In this order: those that stop something come last, and the last one adds a node to which the others' pods might go.
		{"a chain of two hops", twoHops},
		{"a Deployment of 16 pods comes and goes", deployment},
		{"restarts and terminal phases are reported", statuses},
		{"logs exec attach and port-forward", kubeletAPI},
		{"ConfigMaps and Secrets follow their originals", configuration},
		{"Services have their endpoints on both sides", services},
		{"an Ingress follows its original", ingress},
		{"events of the remote pod are shown", events},
		{"a volume is claimed remotely", volumes},
		{"a namespace is offloaded and un-offloaded", offloading},
		{"the quota refuses and then admits", quota},
		{"a second replica takes over", replicas},
		{"a restart recreates no pod", restart},
		{"a change of the network is seen", remapping},
		{"a link that goes down is noticed", link},
		{"providers are lost", lost},
		{"a second slice of one provider", secondSlice},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, f) })
	}
}

// lost has one provider killed and another one frozen at the same time: each is minutes of waiting.
func lost(t *testing.T, f *federation) {
	t.Run("a killed provider cluster comes back", func(t *testing.T) {
		t.Parallel()
		killed(t, f)
	})
	t.Run("a frozen provider is waited for", func(t *testing.T) {
		t.Parallel()
		frozen(t, f.other())
	})
}
