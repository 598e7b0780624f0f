package nodeagent

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

func authority(t *testing.T) []byte {
	t.Helper()
	ca, _, err := certutil.GenerateSelfSignedCertKey("ca", nil, nil)
	require.NoError(t, err)
	return ca
}

// A forward to a port of a pod leads to its process's actual port, in both directions and until the end.
func TestAPortIsForwarded(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}()
	group := proc.NewGroup(t.TempDir())
	t.Cleanup(group.Close)
	process, err := group.Start(proc.Spec{Name: "it", Path: "/bin/sleep", Args: []string{"60"}, Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	a, one, _ := replicas()
	one.pod.Namespace = "ns"
	one.containers = []*container{{
		spec: corev1.Container{Name: "main"}, process: process,
		ports: map[int]int{5872: echo.Addr().(*net.TCPAddr).Port},
	}}

	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- forwarder{a, "ns"}.PortForward(t.Context(), one.pod.Name, "", 5872, there) }()
	require.NoError(t, here.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = here.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(here, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	require.NoError(t, here.Close())
	require.NoError(t, <-ended)

	assert.ErrorContains(t, forwarder{a, "other"}.PortForward(t.Context(), one.pod.Name, "", 5872, there),
		"pod other/broker-5d7f-one is not of node")
	process.Kill()
	assert.ErrorContains(t, forwarder{a, "ns"}.PortForward(t.Context(), one.pod.Name, "", 5872, there), "does not run")
}
