package ipam

import (
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// limitedTLS is TLS with a limit of connections for each consumer, so that one cannot take those of all.
type limitedTLS struct {
	credentials.TransportCredentials
	most int

	mu         sync.Mutex
	byConsumer map[string]int // How many are open; guarded by mu.
}

func newLimitedTLS(under credentials.TransportCredentials, most int) *limitedTLS {
	return &limitedTLS{TransportCredentials: under, most: most, byConsumer: map[string]int{}}
}

// ServerHandshake implements credentials.TransportCredentials.
func (l *limitedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, who, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	consumer, err := consumerFrom(who)
	if err != nil {
		// It is told why with its first call, which costs no more than the handshake did.
		consumer = ""
	}
	if !l.take(consumer) {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("consumer %q has %d connections already", consumer, l.most)
	}
	return &countedConn{Conn: conn, closed: func() { l.give(consumer) }}, who, nil
}

// Clone implements credentials.TransportCredentials; a server's are never cloned to be changed.
func (l *limitedTLS) Clone() credentials.TransportCredentials { return l }

func (l *limitedTLS) take(consumer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byConsumer[consumer] >= l.most {
		return false
	}
	l.byConsumer[consumer]++
	return true
}

func (l *limitedTLS) give(consumer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byConsumer[consumer]--; l.byConsumer[consumer] == 0 {
		delete(l.byConsumer, consumer)
	}
}

// countedConn tells once that it was closed.
type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}
