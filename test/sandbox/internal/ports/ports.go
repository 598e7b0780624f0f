// Package ports finds free TCP ports on loopback.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The port range begins above the ports of well-known servers, and ends below the kernel's range for outgoing
// connections.
const (
	first       = 12000
	defaultLast = 32767
	leastPorts  = 2000
)

// Pool returns ports that were free when requested, each only once. Pools of all processes of a user return different
// ports, until they are closed.
type Pool struct {
	dir   string
	count int

	mu    sync.Mutex
	given map[int]*os.File
}

// NewPool returns a pool without reserved ports.
func NewPool() *Pool {
	return &Pool{
		dir:   filepath.Join(os.TempDir(), fmt.Sprintf("liqo-broker-vk-ports-%d", os.Getuid())),
		count: last() - first + 1, given: map[int]*os.File{},
	}
}

// last returns the last port below the range for outgoing connections: an outgoing connection could take a port between
// its reservation and its use.
func last() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return defaultLast
	}
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil || low < first+leastPorts {
		return defaultLast
	}
	return low - 1
}

// Free returns a port that no process listens on.
func (p *Pool) Free() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return 0, fmt.Errorf("no free port: %w", err)
	}
	for range 1000 {
		port := first + rand.IntN(p.count)
		if p.given[port] != nil {
			continue
		}
		reserved, err := p.reserve(port)
		if err != nil {
			return 0, fmt.Errorf("no free port: %w", err)
		}
		if reserved == nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			reserved.Close()
			continue
		}
		l.Close()
		p.given[port] = reserved
		return port, nil
	}
	return 0, fmt.Errorf("no free port after 1000 tries")
}

// reserve returns a locked file, which the kernel unlocks when this process ends; nil if another pool has it.
func (p *Pool) reserve(port int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(p.dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

// Close releases the ports for other pools.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, f := range p.given {
		f.Close()
		delete(p.given, port)
	}
}
