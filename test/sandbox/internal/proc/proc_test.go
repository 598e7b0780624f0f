package proc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newGroup(t *testing.T) (*Group, string) {
	t.Helper()
	dir := t.TempDir()
	g := NewGroup(dir)
	t.Cleanup(g.Close)
	return g, dir
}

func sleeper(t *testing.T, g *Group, seconds string) *Process {
	t.Helper()
	p, err := g.Start(Spec{Name: "sleeper", Path: "/bin/sleep", Args: []string{seconds}, Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	return p
}

func records(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	return len(files)
}

func TestProcessIsRecordedWhileItRuns(t *testing.T) {
	g, dir := newGroup(t)
	p := sleeper(t, g, "60")
	assert.Equal(t, 1, records(t, dir))
	assert.True(t, p.Running())
	p.Kill()
	assert.False(t, p.Running())
	assert.Error(t, p.Err())
	assert.Equal(t, 0, records(t, dir))
	require.NoError(t, p.Signal(syscall.SIGTERM), "a process that has ended is no error")
}

func TestStopEndsAFrozenProcess(t *testing.T) {
	g, _ := newGroup(t)
	p := sleeper(t, g, "60")
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	p.Stop(10 * time.Second)
	assert.False(t, p.Running())
}

func TestCloseEndsAllProcesses(t *testing.T) {
	g := NewGroup(t.TempDir())
	a, b := sleeper(t, g, "60"), sleeper(t, g, "60")
	g.Close()
	assert.False(t, a.Running())
	assert.False(t, b.Running())
	log := filepath.Join(t.TempDir(), "log")
	_, err := g.Start(Spec{Name: "late", Path: "/bin/true", Log: log})
	assert.ErrorContains(t, err, "late: the group has ended")
	assert.NoFileExists(t, log, "its directory may be removed at this moment")
}

// Processes that are being started while the group is closed end with it, and no process starts afterwards.
func TestNothingStartsBesideClose(t *testing.T) {
	for range 20 {
		dir, records := t.TempDir(), t.TempDir()
		g := NewGroup(records)
		var starts sync.WaitGroup
		for i := range 8 {
			starts.Go(func() {
				for {
					late := Spec{Name: "late", Path: "/bin/sleep", Args: []string{"60"}, Log: filepath.Join(dir, strconv.Itoa(i))}
					if _, err := g.Start(late); err != nil {
						return
					}
				}
			})
		}
		g.Close()
		require.NoError(t, os.RemoveAll(dir))
		starts.Wait()
		assert.NoDirExists(t, dir)
		assert.Empty(t, g.Live())
	}
}

func TestFailureShowsTheLog(t *testing.T) {
	g, _ := newGroup(t)
	log := filepath.Join(t.TempDir(), "log")
	p, err := g.Start(Spec{Name: "loser", Path: "/bin/sh", Args: []string{"-c", "echo why it failed; exit 3"}, Log: log})
	require.NoError(t, err)
	failure := p.Failure()
	assert.ErrorContains(t, failure, "loser ended: exit status 3")
	assert.ErrorContains(t, failure, log)
	assert.ErrorContains(t, failure, "why it failed")
}

func TestKillRecorded(t *testing.T) {
	g, dir := newGroup(t)
	p := sleeper(t, g, "60")

	// A record with the same pid but another start time names another process.
	self, err := Self("self")
	require.NoError(t, err)
	self.Start++
	data, err := json.Marshal(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "self.json"), data, 0o600))
	// A partially written record names no process.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "half.json"), []byte(`{"na`), 0o600))

	killed, err := KillRecorded(dir)
	require.NoError(t, err)
	assert.Equal(t, 1, killed)
	<-p.Done
}

func TestUsageOf(t *testing.T) {
	u, err := UsageOf(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, u.RSS)
	assert.Positive(t, u.PSS)
	assert.LessOrEqual(t, u.PSS, u.RSS)
}
