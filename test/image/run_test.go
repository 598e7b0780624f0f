package image

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// checkWritable checks the permissions as the image's user, with system calls.
func checkWritable(t *testing.T, c container) {
	t.Helper()
	uid, gid := c.user(t)
	// With this root, directories of this machine that the user may not enter do not matter.
	root, err := os.OpenRoot(c.root)
	require.NoError(t, err)
	defer root.Close()
	writable := func(dir string) error {
		done := make(chan error)
		go func() {
			// The thread stays locked, so it ends with the goroutine, and with it the changed user id.
			runtime.LockOSThread()
			_, _ = unix.SetfsgidRetGid(int(gid))
			_, _ = unix.SetfsuidRetUid(int(uid))
			file, err := root.Create(filepath.Join(dir, "try"))
			if err == nil {
				err = file.Close()
			}
			done <- err
		}()
		return <-done
	}
	require.NoError(t, writable("tmp"))
	for _, dir := range []string{".", "etc", "usr", "usr/bin", "licenses"} {
		require.ErrorIs(t, writable(dir), os.ErrPermission, dir)
	}
}

func checkRuns(t *testing.T, c container, config specs.Image) {
	t.Helper()
	t.Run("under each of its names, and prints the version of the label", func(t *testing.T) {
		for _, name := range []string{"liqo-broker-vk", "virtual-kubelet", "kubectl-broker"} {
			got := c.run(t, []string{"/usr/bin/" + name}, []string{"version", "--output=json"}, nil, "")
			require.Zero(t, got.code, got.stderr)
			said := read[struct{ Version, Commit, Platform, Liqo string }](t, []byte(got.stdout))
			require.Equal(t, config.Config.Labels[specs.AnnotationVersion], said.Version)
			require.Equal(t, config.Config.Labels[specs.AnnotationRevision], said.Commit)
			require.Equal(t, "linux/"+config.Architecture, said.Platform)
			require.Equal(t, "v1.2.0", said.Liqo)
		}
	})
	vk := liqosContainer(t)
	env := environment(vk, map[string]string{
		"status.podIP": "10.244.0.7", "metadata.name": "vk-provider-0", "metadata.namespace": "liqo-tenant-provider",
	})
	args := arguments(vk, env)
	require.Equal(t, []string{"/usr/bin/virtual-kubelet"}, vk.Command)
	require.Contains(t, args, "--node-ip=10.244.0.7")
	require.Contains(t, args, "--foreign-kubeconfig-secret-name=kubeconfig-provider")
	t.Logf("Liqo runs %s %s", vk.Command, strings.Join(args, " "))

	t.Run("with Liqo's arguments outside of a cluster, and reports that", func(t *testing.T) {
		got := c.run(t, vk.Command, args, env, "")
		require.Equal(t, 1, got.code)
		require.Empty(t, got.stdout)
		require.Contains(t, lastLine(got.stderr),
			"liqo-broker-vk: connecting to the home cluster (set --home-kubeconfig, or run in a pod)")
	})

	inCluster := c.mountServiceAccount(t)
	t.Run("with Liqo's arguments, waits for a missing API server, and ends when asked", func(t *testing.T) {
		got := c.run(t, vk.Command, args, append(inCluster, env...), "connection refused")
		require.Zero(t, got.code, got.stderr)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, `"msg":"Waiting to be elected"`)
		require.Contains(t, got.stderr, "leases/provider")
		require.Contains(t, lastLine(got.stderr), `"msg":"Stopped"`)
		for line := range strings.Lines(got.stderr) {
			require.True(t, json.Valid([]byte(line)), line)
			require.NotContains(t, line, "no such file or directory")
		}
	})
	broker := []string{
		"broker", "--with-aggregator", "--node-ip=10.244.0.8", "--pod-name=liqo-broker-0", "--namespace=liqo-broker",
		"--health-probe-address=0", "--metrics-address=0",
	}
	t.Run("as the broker, and reports that the API server is missing", func(t *testing.T) {
		got := c.run(t, nil, broker, inCluster, "")
		require.Equal(t, 1, got.code)
		require.Contains(t, lastLine(got.stderr), "liqo-broker-vk: ")
		require.Contains(t, lastLine(got.stderr), "connection refused")
	})
	t.Run("knowing the roots of public servers", func(t *testing.T) { checkRoots(t, c, broker) })
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndex(text, "\n")+1:]
}

// mountServiceAccount mounts the files with which each pod calls the API server. Here no server exists.
func (c container) mountServiceAccount(t *testing.T) (env []string) {
	t.Helper()
	const dir = "var/run/secrets/kubernetes.io/serviceaccount/"
	c.put(t, dir+"token", []byte("token"))
	c.put(t, dir+"ca.crt", newAuthority(t, nil).pem())
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(unused.Addr().String())
	require.NoError(t, err)
	require.NoError(t, unused.Close())
	return []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
}
