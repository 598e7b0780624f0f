package httpserve

import (
	"net"
	"sync"
)

// Shares limits how many of something each key may have open, so that one cannot take what is there for all.
type Shares struct {
	most int

	mu   sync.Mutex
	open map[string]int // By key; guarded by mu.
}

// NewShares returns Shares of most for each key.
func NewShares(most int) *Shares { return &Shares{most: most, open: map[string]int{}} }

// Take counts one until release is called. It returns false if it is one too many.
func (s *Shares) Take(key string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[key] >= s.most {
		return nil, false
	}
	s.open[key]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[key]--; s.open[key] == 0 {
			delete(s.open, key)
		}
	}), true
}

// Open returns how many a key has open.
func (s *Shares) Open(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[key]
}

// Conn counts a connection until it is closed. It closes it at once and returns false if it is one too many.
func (s *Shares) Conn(key string, conn net.Conn) (net.Conn, bool) {
	release, ok := s.Take(key)
	if !ok {
		_ = conn.Close()
		return nil, false
	}
	return &countedConn{Conn: conn, release: release}, true
}

type countedConn struct {
	net.Conn
	release func()
}

func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
