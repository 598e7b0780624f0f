package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
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

// Two sandboxes start side by side. The owner of one is killed by SIGKILL, so it
// can clean nothing up: the kernel ends its processes, and the next down removes
// what they left. The other one is not concerned, and obeys its commands.
func TestSandboxCommand(t *testing.T) {
	command := sandboxCommand(t)
	sandboxes := filepath.Join(cacheDir(t), "sandboxes")
	doomed, doomedEnd := startCommand(t, command("up", "--name=doomed", "--consumers=1", "--providers=1"))
	survivor, survivorEnd := startCommand(t, command("up", "--name=survivor", "--consumers=1", "--providers=1", "--networking"))
	t.Cleanup(func() { _ = survivor.Process.Kill() })

	var pids []int
	eventually(t, 30*time.Minute, func(context.Context) error { // it may have to build everything
		select {
		case err := <-doomedEnd:
			t.Fatalf("up ended by itself: %v", err)
		default:
		}
		if pids = recorded(t, filepath.Join(sandboxes, "doomed")); len(pids) < 6 {
			return fmt.Errorf("%d processes run", len(pids))
		}
		return nil
	})
	require.NoError(t, doomed.Process.Kill())
	require.Error(t, <-doomedEnd)
	eventually(t, 10*time.Second, func(context.Context) error {
		for _, pid := range pids {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				return fmt.Errorf("process %d lives on", pid)
			}
		}
		return nil
	})
	out, err := command("down", "--name=doomed").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "cleaned up after sandbox doomed")
	assert.NoDirExists(t, filepath.Join(sandboxes, "doomed"))

	run := func(args ...string) string {
		t.Helper()
		if args[0] != "kubectl" {
			args = append(args, "--name=survivor")
		}
		out, err := command(args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	eventually(t, 5*time.Minute, func(context.Context) error {
		select {
		case err := <-survivorEnd:
			t.Fatalf("up ended by itself: %v", err)
		default:
		}
		if out, err := command("status", "--name=survivor").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	assert.FileExists(t, strings.TrimSpace(run("kubeconfig", "broker")))
	assert.Contains(t, run("kubectl", "--name=survivor", "broker", "get", "nodes", "-o", "name"), "node/provider1\n")
	assert.Contains(t, run("kubectl", "--name=survivor", "broker", "plugin", "list"), "kubectl-broker")
	var status sandbox.Status
	require.NoError(t, json.Unmarshal([]byte(run("status", "-o", "json")), &status))
	assert.Len(t, status.Processes, 3*4+3*4+2+1, "3 clusters of 4 and of Liqo's 4, 2 virtual kubelets, 1 KWOK")
	for _, verb := range []string{"freeze", "resume", "kill", "restart"} {
		run(verb, "broker/vk-provider1")
	}
	run("link", "down", "broker", "provider1")
	run("link", "up", "broker", "provider1")
	out, err = command("freeze", "broker/nothing", "--name=survivor").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), `no component "nothing" in broker; there are etcd, kube-apiserver`)

	run("down")
	require.NoError(t, <-survivorEnd)
	assert.NoDirExists(t, filepath.Join(sandboxes, "survivor"))
}

// startCommand runs a command whose end is told on the channel, with all that
// it has printed.
func startCommand(t *testing.T, cmd *exec.Cmd) (*exec.Cmd, <-chan error) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	end := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		log.Close()
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			err = fmt.Errorf("%w\n%s", err, text)
		}
		end <- err
	}()
	return cmd, end
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
