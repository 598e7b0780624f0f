package e2e

import (
	"testing"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// The parity suite is one set of scenarios, run against Liqo's own virtual
// kubelet and against ours: what the stock one does, ours must do.

func TestParityStock(t *testing.T) { parity(t, sandbox.ImageStock) }

func TestParityOurs(t *testing.T) { parity(t, sandbox.ImageOurs) }

func parity(t *testing.T, image string) {
	f := start(t, image)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *federation)
	}{
		// In this order: those that stop something come last.
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
		{"a killed provider cluster comes back", killed},
		{"a frozen provider is waited for", frozen},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, f) })
	}
	if image == sandbox.ImageStock {
		t.Run("ours takes over", func(t *testing.T) { takeover(t, f) })
	}
}
