package httpserve

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Callers limits connections by their callers. The caller of a connection is a stranger until CountFor names it.
type Callers struct {
	strangers int
	known     *Shares

	mu   sync.Mutex
	open []*callerConn // Of strangers, the oldest first; guarded by mu.
}

// NewCallers returns limits of so many connections of all strangers together, and of callers that are known.
func NewCallers(strangers int, known *Shares) *Callers {
	return &Callers{strangers: strangers, known: known}
}

// Listener limits the connections of ln, including the limits per host and in total as Run does. If there is one
// stranger too many, it closes the oldest stranger's connection of the host with the most: a caller gets its first
// answer long before its connection is the oldest.
func (c *Callers) Listener(ln net.Listener) net.Listener {
	return c.LimitedListener(ln, connectionsOfHost, connections, func() {})
}

// LimitedListener is Listener with other limits per host and in total. It calls refused for each connection that it
// closes.
func (c *Callers) LimitedListener(ln net.Listener, ofHost, total int, refused func()) net.Listener {
	return limited{&callersListener{Listener: Limit(ln, ofHost, total, refused), callers: c, refused: refused}}
}

type callersListener struct {
	net.Listener
	callers *Callers
	refused func()
}

func (l *callersListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &callerConn{Conn: conn, callers: l.callers, host: HostOf(conn.RemoteAddr().String())}
	if oldest := l.callers.add(counted); oldest != nil {
		_ = oldest.Close()
		l.refused()
	}
	return counted, nil
}

// add counts a connection of a stranger, and returns the connection that must be closed for it.
func (c *Callers) add(conn *callerConn) *callerConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, conn)
	if len(c.open) <= c.strangers {
		return nil
	}
	ofHost := map[string]int{}
	for _, of := range c.open {
		ofHost[of.host]++
	}
	oldest := c.open[0]
	for _, of := range c.open {
		if ofHost[of.host] > ofHost[oldest.host] {
			oldest = of
		}
	}
	c.removeUnlocked(oldest)
	return oldest
}

func (c *Callers) removeUnlocked(conn *callerConn) {
	c.open = slices.DeleteFunc(c.open, func(of *callerConn) bool { return of == conn })
}

// callerConn is a connection that is counted until it is closed.
type callerConn struct {
	net.Conn
	callers *Callers
	host    string

	// Guarded by callers.mu. release is the known caller's; nil for a stranger.
	release func()
	closed  bool
}

func (c *callerConn) Close() error {
	c.callers.mu.Lock()
	release := c.release
	c.callers.removeUnlocked(c)
	c.closed, c.release = true, nil
	c.callers.mu.Unlock()
	if release != nil {
		release()
	}
	return c.Conn.Close()
}

type connKey struct{}

// ConnContext is http.Server's: the context of a request has its connection, for CountFor.
func (c *Callers) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = wrapped.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// CountFor counts the connection of a request for its caller from now on. It returns false if the caller is at its
// limit: then the connection remains a stranger's. The first caller of a connection counts.
func (c *Callers) CountFor(ctx context.Context, caller string) bool {
	conn, ok := ctx.Value(connKey{}).(*callerConn)
	if !ok {
		return true // It is not from the Listener.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.release != nil || conn.closed {
		return true
	}
	if conn.release, ok = c.known.Take(caller); ok {
		c.removeUnlocked(conn)
	}
	return ok
}
