package httpserve

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAShareIsReleasedOnce(t *testing.T) {
	s := NewShares(2)
	first, ok := s.Take("x")
	require.True(t, ok)
	second, ok := s.Take("x")
	require.True(t, ok)
	_, ok = s.Take("x")
	require.False(t, ok)
	other, ok := s.Take("y")
	require.True(t, ok, "another key has its own")
	first()
	first()
	_, ok = s.Take("x")
	require.True(t, ok)
	_, ok = s.Take("x")
	require.False(t, ok, "released twice, it makes room once")
	second()
	other()
	require.Equal(t, map[string]int{"x": 1}, s.open, "a key with nothing open is not kept")
}

// closing counts how often it is closed.
type closing struct {
	net.Conn
	closed int
}

func (c *closing) Close() error {
	c.closed++
	return nil
}

func TestAConnectionIsCountedUntilItIsClosed(t *testing.T) {
	s := NewShares(1)
	first, ok := s.Conn("x", &closing{})
	require.True(t, ok)
	refused := &closing{}
	_, ok = s.Conn("x", refused)
	require.False(t, ok)
	require.Equal(t, 1, refused.closed)
	require.NoError(t, first.Close())
	require.NoError(t, first.Close(), "as net/http may")
	require.Empty(t, s.open)
}
