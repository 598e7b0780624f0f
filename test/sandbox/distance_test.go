package sandbox

import (
	"bytes"
	"context"
	"io"
	"math/rand"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Data arrives complete, in order, and delayed by the latency in each direction. Later data do not wait for earlier
// ones.
func TestDistance(t *testing.T) {
	const way = 60 * time.Millisecond
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &distance{listener: listener, target: echo.Addr().String(), oneWay: way}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()

	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	one := make([]byte, 1)
	began := time.Now()
	_, err = conn.Write([]byte{7})
	require.NoError(t, err)
	_, err = io.ReadFull(conn, one)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), 2*way)
	assert.Equal(t, []byte{7}, one)

	sent := make([]byte, 100*segment+13)
	_, _ = rand.New(rand.NewSource(1)).Read(sent)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	began = time.Now()
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 100*way, "segments wait for each other")
	assert.True(t, bytes.Equal(sent, got), "%d of %d bytes arrived as they were sent", len(got), len(sent))

	cancel()
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", listener.Addr().String())
	require.Error(t, err)
}
