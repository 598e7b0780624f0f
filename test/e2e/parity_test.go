package e2e

import (
	"os"
	"testing"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// The parity suite is one set of scenarios that runs against Liqo's own virtual kubelet and against ours: ours must
// behave like the stock one.

// TestParityStock depends on Liqo, the scenarios and the sandbox, but not on this repository's program. It runs only
// with STOCK=1, which make stock and .ci/run set.
func TestParityStock(t *testing.T) {
	if os.Getenv("STOCK") == "" {
		t.Skip("it depends on Liqo and the scenarios only: make stock runs it")
	}
	parity(t, sandbox.ImageStock)
}

func TestParityOurs(t *testing.T) { parity(t, sandbox.ImageOurs) }

func parity(t *testing.T, image string) {
	aside(t)
	f := start(t, image)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *federation)
	}{
		// The order matters: scenarios that stop something come last, and the last one adds a node to which the other
		// scenarios' pods might go.
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

// lost kills one provider and freezes another one at the same time: each scenario mostly waits, for minutes.
func lost(t *testing.T, f *federation) {
	// Each namespace is offloaded to both providers, which works only before one of them is lost.
	other := f.other()
	f.offload(t, "killed")
	other.offload(t, "frozen")
	t.Run("a killed provider cluster comes back", func(t *testing.T) {
		t.Parallel()
		killed(t, f, "killed")
	})
	t.Run("a frozen provider is waited for", func(t *testing.T) {
		t.Parallel()
		frozen(t, other, "frozen")
	})
}
