package httpserve

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrivals is a listener of connections from addresses; it has ended when all have arrived.
type arrivals struct {
	net.Listener
	from []string
	all  []*arrival
}

type arrival struct {
	net.Conn
	from   net.Addr
	closed int
}

func (a *arrival) RemoteAddr() net.Addr { return a.from }

func (a *arrival) Close() error {
	a.closed++
	return nil
}

func (l *arrivals) Accept() (net.Conn, error) {
	if len(l.all) == len(l.from) {
		return nil, net.ErrClosed
	}
	from, err := net.ResolveTCPAddr("tcp", l.from[len(l.all)])
	if err != nil {
		return nil, err
	}
	conn := &arrival{from: from}
	l.all = append(l.all, conn)
	return conn, nil
}

func TestEachHostHasItsShareOfConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		from []string
		// refused are the connections that are closed at once.
		refused []int
	}{
		"as many as it may have":       {from: []string{"192.0.2.1:1", "192.0.2.1:2"}},
		"one too many":                 {from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3"}, refused: []int{2}},
		"another host has its own":     {from: []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:1"}, refused: []int{2}},
		"one host has an IPv6 /64":     {from: []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"}, refused: []int{2}},
		"and another the next one":     {from: []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8:0:1::3]:1"}},
		"IPv4 is the same within IPv6": {from: []string{"192.0.2.1:1", "[::ffff:192.0.2.1]:2", "192.0.2.1:3"}, refused: []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			source, refused := &arrivals{from: tc.from}, 0
			l := &fairListener{Listener: source, hosts: NewShares(2), refused: func() { refused++ }}
			accepted := 0
			for {
				if _, err := l.Accept(); err != nil {
					require.ErrorIs(t, err, net.ErrClosed)
					break
				}
				accepted++
			}
			require.Equal(t, len(tc.from)-len(tc.refused), accepted)
			require.Equal(t, len(tc.refused), refused)
			var closed []int
			for i, conn := range source.all {
				if conn.closed > 0 {
					closed = append(closed, i)
				}
			}
			require.Equal(t, tc.refused, closed)
		})
	}
}
