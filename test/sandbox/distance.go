package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// segment is the maximum size that a proxy reads at once.
	segment = 32 << 10
	// inFlight is how many segments may be in transit in one direction of a connection.
	inFlight = 1024
)

// distance is a proxy that delays all data for a fixed time, in both directions.
type distance struct {
	listener net.Listener
	target   string
	oneWay   time.Duration
}

// keepAway puts a proxy in front of the cluster's API server if the sandbox has latency. Other clusters get the proxy's
// address.
func (c *Cluster) keepAway() error {
	s := c.sandbox
	if s.opts.Latency == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.distance = &distance{listener: listener, target: fmt.Sprintf("127.0.0.1:%d", c.plane.APIPort()), oneWay: s.opts.Latency / 2}
	s.background.Go(func() error { return c.distance.run(s.runCtx) })
	return nil
}

// url returns the API server's address for other clusters.
func (c *Cluster) url() string {
	switch {
	case c.machineNetwork != nil:
		return "https://" + c.apiServer()
	case c.distance != nil:
		return "https://" + c.distance.listener.Addr().String()
	}
	return c.plane.URL()
}

// run serves until ctx ends.
func (d *distance) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() { _ = d.listener.Close() })()
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			_ = group.Wait()
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		group.Go(func() error {
			d.join(ctx, conn)
			return nil
		})
	}
}

// join connects a client with the API server until one of them ends.
func (d *distance) join(ctx context.Context, caller net.Conn) {
	defer caller.Close()
	server, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", d.target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = caller.Close(), server.Close() })()
	var both errgroup.Group
	both.Go(func() error { return d.carry(server, caller) })
	both.Go(func() error { return d.carry(caller, server) })
	_ = both.Wait()
}

// carry copies segments with a fixed delay after their arrival, and closes the other side in the end.
func (d *distance) carry(to, from net.Conn) error {
	type late struct {
		data []byte
		at   time.Time
	}
	way := make(chan late, inFlight)
	var both errgroup.Group
	both.Go(func() error {
		defer close(way)
		for {
			data := make([]byte, segment)
			n, err := from.Read(data)
			if n > 0 {
				way <- late{data[:n], time.Now().Add(d.oneWay)}
			}
			if err != nil {
				return err
			}
		}
	})
	both.Go(func() error {
		var failed error
		for l := range way { // Read to the end, so that the reader does not block indefinitely.
			if failed != nil {
				continue
			}
			time.Sleep(time.Until(l.at))
			if _, failed = to.Write(l.data); failed != nil {
				_ = from.Close()
			}
		}
		if half, ok := to.(*net.TCPConn); ok && failed == nil {
			return half.CloseWrite() // The answer may still be in transit.
		}
		return failed
	})
	if err := both.Wait(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
