package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// A component that exits by itself is restarted, as a kubelet would do. A component that is ended is not.
func TestAComponentThatEndsByItselfRunsAgain(t *testing.T) {
	dir := t.TempDir()
	group := proc.NewGroup(t.TempDir())
	t.Cleanup(group.Close)
	starts := filepath.Join(dir, "starts")
	times := func(want int) func(context.Context) error {
		return func(context.Context) error {
			text, err := os.ReadFile(starts)
			if n := strings.Count(string(text), "started"); err == nil && n < want {
				return errors.New("too few starts")
			}
			return err
		}
	}
	// It is called as `BINARY COMPONENT ARGS`. The third run does not exit.
	script := `echo started >> ` + starts + `; sleep 1; test $(wc -l < ` + starts + `) -lt 3 || exec sleep 60; exit 1`
	comp := &component{name: "-c", args: []string{script}, ready: times(1)}
	c := &Cluster{cfg: Config{Name: "test", Dir: dir, Binary: "/bin/sh", Group: group}, components: []*component{comp}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, c.Restart(ctx, ""))
	first := c.Processes()["-c"]
	require.Eventually(t, func() bool { return times(3)(ctx) == nil }, 30*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool { return c.Processes()["-c"].Running() }, 30*time.Second, 20*time.Millisecond)
	last := c.Processes()["-c"]
	assert.NotSame(t, first, last)

	last.Kill()
	time.Sleep(restartAfter + 500*time.Millisecond) // An event that does not happen cannot be awaited.
	assert.Same(t, last, c.Processes()["-c"])
	assert.False(t, last.Running())
}
