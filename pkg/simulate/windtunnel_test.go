package simulate

import (
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bounds of make windtunnel.
const (
	mostCPUTime = time.Minute
	mostMemory  = 500 << 20
)

// TestWindTunnel measures 100 providers and 100,000 pods on one core. It runs with WINDTUNNEL=1 only (make windtunnel).
// The bound is for CPU time: others may use the cores, too.
func TestWindTunnel(t *testing.T) {
	if os.Getenv("WINDTUNNEL") == "" {
		t.Skip("set WINDTUNNEL=1")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // As the command.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(400 << 20))
	sc, err := Load("testdata/windtunnel.yaml", nil)
	require.NoError(t, err)
	var before, after syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	began := time.Now()
	r, err := Run(t.Context(), sc, options())
	require.NoError(t, err)
	took := time.Since(began)
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	memory, moves := after.Maxrss<<10, 0
	for _, m := range r.Moves {
		moves += m.Moves
	}
	t.Logf("%d providers, %d pods, %d moves: %s of CPU time (%s), %d MiB of memory at most",
		len(r.Providers), r.Pods.Arrived, moves, cpu.Round(100*time.Millisecond), took.Round(100*time.Millisecond), memory>>20)
	require.GreaterOrEqual(t, r.Pods.Arrived, 100_000)
	require.Len(t, r.Providers, 100)
	require.LessOrEqual(t, cpu, mostCPUTime)
	require.LessOrEqual(t, memory, int64(mostMemory))
}
