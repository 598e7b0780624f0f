package httpserve

import (
	"net"
	"sync"
)

// Shares limits the open items of each key, so that one key cannot use up the total.
type Shares struct {
	// may reports whether a key with so many open items, of so many in total, may have one more.
	may func(open, all int) bool

	mu sync.Mutex
	// open is the number of open items by key, all their total; guarded by mu.
	open map[string]int
	all  int
}

// NewShares returns Shares with a limit for each key.
func NewShares(most int) *Shares {
	return &Shares{may: func(open, _ int) bool { return open < most }, open: map[string]int{}}
}

// NewFairShares returns Shares of a number of items: each key may have as many as are free. Thus one key has at most
// half of all, two have a third each, and there is always a free item for the next key.
func NewFairShares(number int) *Shares {
	return &Shares{may: func(open, all int) bool { return open < number-all }, open: map[string]int{}}
}

// Take counts an item until release is called. It returns false if the key is at its limit.
func (s *Shares) Take(key string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.may(s.open[key], s.all) {
		return nil, false
	}
	s.all++
	s.open[key]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.open[key]--; s.open[key] == 0 {
			delete(s.open, key)
		}
	}), true
}

// Open returns the number of open items of a key.
func (s *Shares) Open(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[key]
}

// All returns the number of open items of all keys.
func (s *Shares) All() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Conn counts a connection until it is closed. If the key is at its limit, Conn closes the connection at once and
// returns false.
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
