package catalog

import (
	"net"
	"sync"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// fairListener lets each host have so many connections, and closes at once what is more: one host alone cannot take all
// that there may be.
type fairListener struct {
	net.Listener
	perHost int
	refused func()

	mu   sync.Mutex
	open map[string]int // By host; guarded by mu.
}

func newFairListener(ln net.Listener, perHost int, refused func()) *fairListener {
	return &fairListener{Listener: ln, perHost: perHost, refused: refused, open: map[string]int{}}
}

// Accept implements net.Listener.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := caller.HostOf(conn.RemoteAddr().String())
		if l.enter(host) {
			return &countedConn{Conn: conn, left: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close() // Nothing was said yet.
		l.refused()
	}
}

func (l *fairListener) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[host] >= l.perHost {
		return false
	}
	l.open[host]++
	return true
}

func (l *fairListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[host]--; l.open[host] == 0 {
		delete(l.open, host)
	}
}

// countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.left()
	return c.Conn.Close()
}
