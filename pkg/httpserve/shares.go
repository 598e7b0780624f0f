package httpserve

import (
	"net"
	"sync"
)

// Shares limits how many of something each key may have open, so that one cannot take what is there for all.
type Shares struct {
	// may reports whether a key that has so many open, of so many in all, may have one more.
	may func(open, all int) bool

	mu sync.Mutex
	// open is how many each key has open, all how many there are; guarded by mu.
	open map[string]int
	all  int
}

// NewShares returns Shares of most for each key.
func NewShares(most int) *Shares {
	return &Shares{may: func(open, _ int) bool { return open < most }, open: map[string]int{}}
}

// NewFairShares returns Shares of a number of something: each key may have as many as are free. Thus one key has at most half of
// all, two have a third each, and however many they are, the next one finds some.
func NewFairShares(number int) *Shares {
	return &Shares{may: func(open, all int) bool { return open < number-all }, open: map[string]int{}}
}

// Take counts one until release is called. It returns false if it is one too many.
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

// Open returns how many a key has open.
func (s *Shares) Open(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[key]
}

// All returns how many are open of all keys.
func (s *Shares) All() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
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
