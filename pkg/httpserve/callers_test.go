package httpserve

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStrangerTooManyClosesTheOldestOfTheHostWithMost(t *testing.T) {
	for name, tc := range map[string]struct {
		from []string
		// known are the connections whose caller is known when the last one arrives.
		known, closed []int
	}{
		"as many as there may be":          {from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"}},
		"the oldest of one host":           {from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.1:4"}, closed: []int{0}},
		"the oldest of the host with most": {from: []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.2:2", "192.0.2.3:1"}, closed: []int{1}},
		"a new one of the host with most":  {from: []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.2:2"}, closed: []int{1}},
		"none whose caller is known": {
			from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.1:4"}, known: []int{0, 1},
		},
		"one remains one for one caller": {
			from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.1:4"}, known: []int{0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			callers := NewCallers(3, NewShares(5))
			source := &arrivals{from: tc.from}
			l := callers.Listener(source)
			var contexts []context.Context
			for i := range tc.from {
				if i == len(tc.from)-1 {
					for _, known := range tc.known {
						require.True(t, callers.CountFor(contexts[known], "a"))
					}
				}
				conn, err := l.Accept()
				require.NoError(t, err)
				contexts = append(contexts, callers.ConnContext(t.Context(), conn))
			}
			var closed []int
			for i, conn := range source.all {
				if conn.closed > 0 {
					closed = append(closed, i)
				}
			}
			require.Equal(t, tc.closed, closed)
		})
	}
}

func TestACallerHasItsShareOfConnections(t *testing.T) {
	callers := NewCallers(3, NewShares(1))
	l := callers.Listener(&arrivals{from: []string{"192.0.2.1:1", "192.0.2.1:2"}})
	var conns []net.Conn
	var contexts []context.Context
	for range 2 {
		conn, err := l.Accept()
		require.NoError(t, err)
		conns, contexts = append(conns, conn), append(contexts, callers.ConnContext(t.Context(), conn))
	}
	require.True(t, callers.CountFor(contexts[0], "a"))
	require.True(t, callers.CountFor(contexts[0], "a"), "of one connection")
	require.False(t, callers.CountFor(contexts[1], "a"))
	require.Len(t, callers.open, 1, "it remains a stranger's")
	require.NoError(t, conns[0].Close())
	require.NoError(t, conns[0].Close(), "as net/http may")
	require.True(t, callers.CountFor(contexts[0], "a"), "a connection that was closed counts no more")
	require.True(t, callers.CountFor(contexts[1], "a"))
	require.Empty(t, callers.open)
	require.Equal(t, 1, callers.known.Open("a"))
	require.True(t, callers.CountFor(t.Context(), "a"), "of another server")
	require.NoError(t, conns[1].Close())
	require.Zero(t, callers.known.Open("a"))
}

func TestTheCallerOfAConnectionWithTLSIsCounted(t *testing.T) {
	callers := NewCallers(1, NewFairShares(4))
	refused := 0
	l := callers.LimitedListener(&arrivals{from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"}}, 3, 9, func() { refused++ })
	accept := func() context.Context {
		conn, err := l.Accept()
		require.NoError(t, err)
		return callers.ConnContext(t.Context(), tls.Server(&peeked{Conn: conn}, &tls.Config{MinVersion: tls.VersionTLS13}))
	}
	first := accept()
	require.True(t, callers.CountFor(first, "a"))
	require.Empty(t, callers.open, "it is no stranger's")
	accept()
	require.Zero(t, refused)
	accept()
	require.Equal(t, 1, refused, "one stranger too many")
	require.Len(t, callers.open, 1)
}
