package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sandboxCommand builds the command that people use, with a state of its own
// and the binaries of everybody.
func sandboxCommand(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "sandbox")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../sandbox/cmd/sandbox").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(args ...string) *exec.Cmd { return exec.Command(bin, args...) }
}

// A command killed by SIGKILL can clean nothing up. The kernel ends its
// processes, and the next down removes what they left.
func TestNothingSurvivesTheDeathOfTheOwner(t *testing.T) {
	command := sandboxCommand(t)
	const name = "doomed"
	dir := filepath.Join(cacheDir(t), "sandboxes", name)
	up := command("up", "--name", name, "--consumers=1", "--providers=1")
	var log bytes.Buffer
	up.Stdout, up.Stderr = &log, &log
	require.NoError(t, up.Start())
	waited := make(chan error, 1)
	go func() { waited <- up.Wait() }()

	var pids []int
	eventually(t, 30*time.Minute, func(context.Context) error {
		select {
		case err := <-waited:
			t.Fatalf("up ended by itself: %v\n%s", err, log.String())
		default:
		}
		if pids = recorded(t, dir); len(pids) < 6 {
			return fmt.Errorf("%d processes run", len(pids))
		}
		return nil
	})
	require.NoError(t, up.Process.Kill())
	<-waited
	eventually(t, 10*time.Second, func(context.Context) error {
		for _, pid := range pids {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				return fmt.Errorf("process %d lives on", pid)
			}
		}
		return nil
	})
	out, err := command("down", "--name", name).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "cleaned up after sandbox doomed")
	assert.NoDirExists(t, dir)
}

func recorded(t *testing.T, dir string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "processes", "*.json"))
	require.NoError(t, err)
	for _, f := range files {
		var id struct{ PID int }
		if data, err := os.ReadFile(f); err == nil && json.Unmarshal(data, &id) == nil {
			pids = append(pids, id.PID)
		}
	}
	return pids
}

func cacheDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("LIQO_BROKER_VK_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	require.NoError(t, err)
	return filepath.Join(dir, "liqo-broker-vk")
}

// Bad arguments are told before anything starts.
func TestSandboxCommandRefusesBadArguments(t *testing.T) {
	command := sandboxCommand(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"up", "--providers=0"}, "--providers=0: use 1 to 16"},
		{[]string{"up", "--name=No Name"}, `--name="No Name"`},
		{[]string{"up", "--image=nginx:1"}, `--image="nginx:1"`},
		{[]string{"status", "--name=nobody"}, `no sandbox "nobody" is up`},
		{[]string{"kubeconfig"}, "accepts 1 arg(s)"},
		{[]string{"link", "sideways", "a", "b"}, "use up or down"},
		{[]string{"fly"}, `unknown command "fly"`},
	} {
		out, err := command(c.args...).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%v: %s", c.args, out)
		assert.Equal(t, 1, exit.ExitCode())
		assert.Contains(t, string(out), c.want)
	}
}
