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

func TestAKeyHasAsManyAsAreFree(t *testing.T) {
	f := NewFairShares(12)
	take := func(key string) (releases []func()) {
		for release, ok := f.Take(key); ok; release, ok = f.Take(key) {
			releases = append(releases, release)
		}
		return releases
	}
	first := take("x")
	require.Len(t, first, 6)
	require.Len(t, take("y"), 3)
	require.Len(t, take("z"), 2, "half of what is left, rounded up")
	first[0]()
	first[0]()
	require.Equal(t, 2, 12-f.all, "released twice, it is free once")
	require.Empty(t, take("x"), "it has more than is free")
	for _, release := range first {
		release()
	}
	require.NotContains(t, f.open, "x", "a key with nothing open is not kept")
	require.Len(t, take("x"), 4)
}
