package ports

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoolsGiveOutDifferentPorts(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	// So few that two independent pools would collide.
	a, b := NewPool(), NewPool()
	a.count, b.count = 60, 60
	given := map[int]bool{}
	for range 15 {
		for _, pool := range []*Pool{a, b} {
			port, err := pool.Free()
			require.NoError(t, err)
			assert.False(t, given[port], "port %d", port)
			assert.True(t, port >= first && port < first+60, "port %d", port)
			given[port] = true
		}
	}
}

func TestPortsOfAClosedPoolAreFree(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := NewPool()
	port, err := a.Free()
	require.NoError(t, err)
	other, err := NewPool().reserve(port)
	require.NoError(t, err)
	require.Nil(t, other, "another pool has it")
	a.Close()
	other, err = NewPool().reserve(port)
	require.NoError(t, err)
	require.NotNil(t, other)
	require.NoError(t, other.Close())
}

func TestPortsInUseAreNotGivenOut(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	pool := NewPool()
	port, err := pool.Free()
	require.NoError(t, err)
	pool.Close()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(t, err)
	defer l.Close()
	for range 200 {
		got, err := pool.Free()
		require.NoError(t, err)
		require.NotEqual(t, port, got)
	}
}

func TestPortsAreNotThoseOfOutgoingConnections(t *testing.T) {
	conn, err := net.Listen("tcp", "127.0.0.1:0") // The kernel chooses from the same range.
	require.NoError(t, err)
	defer conn.Close()
	require.Less(t, last(), conn.Addr().(*net.TCPAddr).Port)
}
