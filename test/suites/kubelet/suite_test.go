package kubelet

import (
	"os"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
)

// watchTimeout is how long the suite waits for a condition. Its own default is 2 minutes.
const watchTimeout = 40 * time.Second

// TestVirtualKubelet runs the suite against the Node SUITE_NODE, with pods in namespace SUITE_NAMESPACE, as the
// administrator that SUITE_KUBECONFIG has.
func TestVirtualKubelet(t *testing.T) {
	node := os.Getenv("SUITE_NODE")
	if node == "" {
		t.Skip("run it by make liqo-e2e")
	}
	e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
		Kubeconfig: os.Getenv("SUITE_KUBECONFIG"), Namespace: os.Getenv("SUITE_NAMESPACE"), NodeName: node, WatchTimeout: watchTimeout,
	}).Run(t)
}
