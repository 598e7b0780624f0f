package httpserve

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// recordHandshake is the first byte of a TLS connection: the type of its first record (RFC 8446, section 5.1). No
// method of HTTP begins with it.
const recordHandshake = 0x16

// acceptBackoff is the time before the next attempt to accept a connection, when the system has no file descriptor for
// one.
const acceptBackoff = 50 * time.Millisecond

// Splitter splits the connections of a listener by their first byte: connections that begin a TLS handshake, and all
// others.
type Splitter struct {
	ln   net.Listener
	wait time.Duration

	secure, plain *half
}

// Split returns a Splitter of ln. A connection without a first byte within wait is closed. Both listeners share the
// limits of ln.
func Split(ln net.Listener, wait time.Duration) *Splitter {
	return &Splitter{ln: ln, wait: wait, secure: newHalf(ln.Addr()), plain: newHalf(ln.Addr())}
}

// Secure is the listener of the connections with TLS, Plain the listener of the others. Run must run.
func (s *Splitter) Secure() net.Listener { return limited{s.secure} }

// Plain is the listener of the connections without TLS.
func (s *Splitter) Plain() net.Listener { return limited{s.plain} }

// Run accepts connections until ctx ends, and then returns nil. It closes the listener, and the connections that no
// server has yet; the servers close theirs.
func (s *Splitter) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup // The port is free after this.
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		<-ctx.Done()
		_ = s.ln.Close()
	})
	for {
		conn, err := s.ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			_, _ = s.secure.Close(), s.plain.Close()
			return err
		case err != nil:
			select {
			case <-ctx.Done():
			case <-time.After(acceptBackoff):
			}
			continue
		}
		running.Go(func() { s.dispatch(ctx, conn) })
	}
}

// dispatch passes a connection to its listener.
func (s *Splitter) dispatch(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	first := make([]byte, 1)
	if err := conn.SetReadDeadline(time.Now().Add(s.wait)); err != nil {
		stop()
		_ = conn.Close()
		return
	}
	n, err := conn.Read(first)
	if !stop() || n == 0 || err != nil || conn.SetReadDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	of := s.plain
	if first[0] == recordHandshake {
		of = s.secure
	}
	select {
	case of.conns <- &peeked{Conn: conn, first: first}:
	case <-of.closed:
		_ = conn.Close()
	case <-ctx.Done():
		_ = conn.Close()
	}
}

// half is one of the listeners.
type half struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newHalf(address net.Addr) *half {
	return &half{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *half) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *half) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *half) Addr() net.Addr { return h.address }

// peeked is a connection whose first byte has been read. A connection has one reader.
type peeked struct {
	net.Conn
	first []byte
}

// NetConn returns the connection without the bytes that were already read, as tls.Conn.NetConn does.
func (p *peeked) NetConn() net.Conn { return p.Conn }

func (p *peeked) Read(into []byte) (int, error) {
	if len(p.first) == 0 || len(into) == 0 {
		return p.Conn.Read(into)
	}
	n := copy(into, p.first)
	p.first = p.first[n:]
	return n, nil
}
