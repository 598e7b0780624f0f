package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// patience bounds each wait of a test; only a failure waits that long.
const patience = 60 * time.Second

// container runs the image's binary as a kubelet would: in the image's root directory, as the image's user, and with
// the image's environment. Of this machine it shares only the network.
type container struct {
	root   string
	config specs.ImageConfig
}

// put adds a file that everyone can read, like a mounted volume.
func (c container) put(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(c.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o644))
}

// user returns the image's user. It is a number, because the kubelet rejects a name with runAsNonRoot.
func (c container) user(t *testing.T) (uid, gid uint32) {
	t.Helper()
	user, group, _ := strings.Cut(c.config.User, ":")
	number := func(text string) uint32 {
		id, err := strconv.ParseUint(text, 10, 32)
		require.NoError(t, err)
		require.NotZero(t, id)
		return uint32(id)
	}
	return number(user), number(group)
}

// ended is the result of a container.
type ended struct {
	code           int
	stdout, stderr string
}

// run starts a command, by default the image's, and waits until it ends. Once its log contains ready, run asks it to
// end; "" is never found.
func (c container) run(t *testing.T, command, args, env []string, ready string) ended {
	t.Helper()
	if len(command) == 0 {
		command = c.config.Entrypoint
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	uid, gid := c.user(t)
	cmd := exec.CommandContext(ctx, command[0], slices.Concat(command[1:], args)...)
	cmd.Dir, cmd.Env = c.config.WorkingDir, slices.Concat(c.config.Env, env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	var stdout bytes.Buffer
	stderr := &watched{ready: ready, then: func() { _ = cmd.Process.Signal(syscall.SIGTERM) }}
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	require.NoError(t, cmd.Start())
	err := cmd.Wait()
	require.NoError(t, ctx.Err(), "it did not end:\n%s", stderr.seen.String())
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.seen.String()}
}

// watched keeps the written text, and calls a function once when the text contains a string. Only one goroutine writes
// to it.
type watched struct {
	seen  bytes.Buffer
	ready string
	then  func()
}

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.seen.Write(p)
	if w.ready != "" && strings.Contains(w.seen.String(), w.ready) {
		w.ready = ""
		w.then()
	}
	return n, err
}

// environment returns the environment that the kubelet creates for a pod's container.
func environment(spec corev1.Container, fields map[string]string) []string {
	var env []string
	for _, v := range spec.Env {
		value := v.Value
		if v.ValueFrom != nil {
			value = fields[v.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}

// arguments returns the arguments that the kubelet creates for a pod's container.
func arguments(spec corev1.Container, env []string) []string {
	var pairs []string
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		pairs = append(pairs, "$("+name+")", value)
	}
	expand := strings.NewReplacer(pairs...)
	args := make([]string, 0, len(spec.Args))
	for _, arg := range spec.Args {
		args = append(args, expand.Replace(arg))
	}
	return args
}
