package histories

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// TestMain silences client-go and controller-runtime: the tests inject their errors on purpose.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
