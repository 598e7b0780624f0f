// Package ports finds free TCP ports on loopback.
package ports

import (
	"fmt"
	"net"
	"sync"
)

// Pool hands out ports that were free when asked for, none of them twice.
type Pool struct {
	mu    sync.Mutex
	given map[int]bool
}

// NewPool returns a pool that has given out nothing.
func NewPool() *Pool { return &Pool{given: map[int]bool{}} }

// Free returns a port that nothing listens on. It asks the kernel, so another
// process may take the port before its user binds it; the user then fails with
// "address already in use".
func (p *Pool) Free() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("no free port: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if !p.given[port] {
			p.given[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port after 100 tries")
}
