package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/docs"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// patience bounds how long a condition may take to hold.
	patience = 2 * time.Minute
	// blockTimeout bounds a block of commands. One of them builds the image.
	blockTimeout = 10 * time.Minute
)

// reader has a shell, a home directory with kubeconfigs, and the programs that README.md lists.
type reader struct {
	*sandbox.Sandbox
	home string
	// vars are kept from block to block, as in one shell.
	vars string
}

func newReader(t *testing.T, s *sandbox.Sandbox, helm string) *reader {
	t.Helper()
	programs, err := sandbox.Installers(t.Context(), t.Logf)
	require.NoError(t, err)
	r := &reader{Sandbox: s, home: t.TempDir()}
	bin := filepath.Join(r.home, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	for name, program := range map[string]string{
		"helm": filepath.Join(programs, helm), "liqoctl": filepath.Join(programs, "liqoctl"),
		"kubectl": filepath.Join(s.Tools(), "kubectl"),
	} {
		require.NoError(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	// README.md names the files so, and the clusters' ids are consumer, broker and provider1.
	for file, cluster := range map[string]string{
		"consumer.yaml": sandbox.Consumer(1), "broker.yaml": sandbox.Broker, "provider1.yaml": sandbox.Provider(1),
	} {
		require.NoError(t, os.Symlink(s.Cluster(cluster).Kubeconfig(), filepath.Join(r.home, file)))
	}
	r.vars = filepath.Join(r.home, "vars")
	require.NoError(t, os.WriteFile(r.vars, []byte("cd "+r.home+"\n"), 0o600))
	return r
}

// change is a difference between a document and the commands that run. The document must have the text.
type change struct{ from, to string }

// run runs a block of commands, and returns its output. Variables and the directory are kept for the next block.
func (r *reader) run(t *testing.T, script string, changes ...change) string {
	t.Helper()
	for _, c := range changes {
		require.Contains(t, script, c.from)
		script = strings.ReplaceAll(script, c.from, c.to)
	}
	ctx, cancel := context.WithTimeout(t.Context(), blockTimeout)
	defer cancel()
	keep := fmt.Sprintf("\ndeclare -p KUBECONFIG REPOSITORY ADDRESS 2>/dev/null | sed 's/^declare -- /declare -x /' > %[1]s.new || true\n"+
		"echo \"cd '$PWD'\" >> %[1]s.new\nmv %[1]s.new %[1]s\n", r.vars)
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", ". "+r.vars+"\n"+script+keep)
	cmd.Dir = r.home
	// If the block takes too long, the commands of the shell end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	cmd.Env = []string{
		"HOME=" + r.home, "PATH=" + filepath.Join(r.home, "bin") + ":" + os.Getenv("PATH"), "TERM=dumb",
		// The commit of this tree in place of the one of the forge.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + repository + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/capacitorset/liqo-broker-vk",
		"PLATFORMS=linux/" + goEnv(t, "GOARCH"), // For one platform, as the comment in README.md says.
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOFLAGS", "GONOSUMDB"} {
		cmd.Env = append(cmd.Env, name+"="+goEnv(t, name))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.Logf("%s\n%s", script, out.String())
	require.NoError(t, err)
	return out.String()
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// blocks returns the blocks of a document that this suite runs, in order.
func blocks(t *testing.T, path string) (texts []string) {
	t.Helper()
	document, err := docs.Read(path)
	require.NoError(t, err)
	for i := range document.Blocks {
		if document.Blocks[i].RunBy == docs.RunByInstall {
			texts = append(texts, document.Blocks[i].Text)
		}
	}
	return texts
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func(context.Context) error) {
	t.Helper()
	require.NoError(t, sandbox.Eventually(t.Context(), patience, holds))
}
