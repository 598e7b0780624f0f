package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// sandboxCommand builds the command that users run. Its sandboxes have their own state and use the shared binaries.
func sandboxCommand(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "sandbox")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../sandbox/cmd/sandbox").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(args ...string) *exec.Cmd { return exec.Command(bin, args...) }
}

func sandboxDir(t *testing.T, name string) string {
	t.Helper()
	cache, err := sandbox.CacheDir()
	require.NoError(t, err)
	return filepath.Join(cache, "sandboxes", name)
}

// killedOwner starts a sandbox beside the federation and kills its owner with SIGKILL, so that the owner cannot clean
// up. The kernel ends the sandbox's processes, and the next down removes its remains. The federation is not affected.
func (b *brokered) killedOwner(t *testing.T) {
	command, dir := sandboxCommand(t), sandboxDir(t, "doomed")
	doomed, end := startCommand(t, command("up", "--name=doomed", "--consumers=1", "--providers=1"))
	var pids []int
	eventually(t, 2*time.Minute, func(context.Context) error {
		select {
		case err := <-end:
			t.Fatalf("up ended by itself: %v", err)
		default:
		}
		if pids = recorded(t, dir); len(pids) < 6 {
			return fmt.Errorf("%d processes run", len(pids))
		}
		return nil
	})
	before := b.Status()
	require.NoError(t, doomed.Process.Kill())
	require.Error(t, <-end)
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
	assert.NoDirExists(t, dir)

	out, err = command("status", "--name=federation", "-o", "json").CombinedOutput()
	require.NoError(t, err, string(out))
	var after sandbox.Status
	require.NoError(t, json.Unmarshal(out, &after))
	assert.Equal(t, processes(before), processes(after))
}

// processes returns the ids of all processes of a sandbox.
func processes(status sandbox.Status) (pids []int) {
	for i := range status.Processes {
		pids = append(pids, status.Processes[i].PID)
	}
	slices.Sort(pids)
	return pids
}

// TestSandboxCommand starts a sandbox, runs every command with it, and ends it.
func TestSandboxCommand(t *testing.T) {
	aside(t)
	command := sandboxCommand(t)
	owner, end := startCommand(t, command("up", "--name=commanded", "--consumers=1", "--providers=1", "--networking"))
	t.Cleanup(func() { _ = owner.Process.Kill() })
	run := func(args ...string) string {
		t.Helper()
		if args[0] != "kubectl" {
			args = append(args, "--name=commanded")
		}
		out, err := command(args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	eventually(t, 30*time.Minute, func(context.Context) error { // It may have to build everything.
		select {
		case err := <-end:
			t.Fatalf("up ended by itself: %v", err)
		default:
		}
		if out, err := command("status", "--name=commanded").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	assert.FileExists(t, strings.TrimSpace(run("kubeconfig", "broker")))
	assert.Contains(t, run("kubectl", "--name=commanded", "broker", "get", "nodes", "-o", "name"), "node/provider1\n")
	assert.Contains(t, run("kubectl", "--name=commanded", "broker", "plugin", "list"), "kubectl-broker")
	var status sandbox.Status
	require.NoError(t, json.Unmarshal([]byte(run("status", "-o", "json")), &status))
	assert.Len(t, status.Processes, 3*4+3*4+2+1, "3 clusters of 4 and of Liqo's 4, 2 virtual kubelets, 1 KWOK")
	for _, verb := range []string{"freeze", "resume", "kill", "restart"} {
		run(verb, "broker/vk-provider1")
	}
	run("link", "down", "broker", "provider1")
	run("link", "up", "broker", "provider1")
	out, err := command("freeze", "broker/nothing", "--name=commanded").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), `no component "nothing" in broker; there are etcd, kube-apiserver`)

	run("down")
	require.NoError(t, <-end)
	assert.NoDirExists(t, sandboxDir(t, "commanded"))
}

// startCommand starts a command with its output. When the command ends, its error is sent to the channel.
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

// TestSandboxCommandRefusesBadArguments checks that invalid arguments are reported before anything starts.
func TestSandboxCommandRefusesBadArguments(t *testing.T) {
	command := sandboxCommand(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"up", "--providers=0"}, "--providers=0: use 1 to 16"},
		{[]string{"up", "--name=No Name"}, `--name="No Name"`},
		{[]string{"up", "--image=nginx:1"}, `--image="nginx:1"`},
		{[]string{"status", "--name=nosuch"}, `no sandbox "nosuch" is up`},
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
