package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// service forwards connections to the replicas of a component of the broker's cluster in turn, as a Service does,
// because there is no kube-proxy. Its address does not change when replicas do.
type service struct {
	sandbox         *Sandbox
	component, port string
	// address is HOST:PORT.
	address string

	mu    sync.Mutex
	calls int  // The number of connections so far; guarded by mu.
	cut   bool // Whether all connections are blocked; guarded by mu.
	// cutOff ends the current connections, which live as long as open; guarded by mu.
	cutOff context.CancelFunc
	open   context.Context // Ended by cutOff.
}

// newService listens at once, until the sandbox ends, so that its address can be an argument of programs that start
// later.
func (s *Sandbox) newService(ctx context.Context, component, port string) (*service, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("service of %s: %w", component, err)
	}
	v := &service{sandbox: s, component: Broker + "/" + component, port: port, address: listener.Addr().String()}
	s.background.Go(func() error {
		<-s.runCtx.Done()
		return listener.Close()
	})
	s.background.Go(func() error {
		var calls sync.WaitGroup
		defer calls.Wait()
		for {
			call, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			calls.Go(func() { v.forward(s.runCtx, call) })
		}
	})
	return v, nil
}

// serveRemoteIPAM makes the consumers use the Service of the remote IPAM.
func (s *Sandbox) serveRemoteIPAM(ctx context.Context) error {
	var err error
	if s.ipam, err = s.newService(ctx, BrokerComponent, "ipam"); err != nil {
		return err
	}
	s.opts.BrokerArgs = append(s.opts.BrokerArgs, "--with-aggregator")
	s.opts.ConsumerArgs = append(s.opts.ConsumerArgs, "--remote-ipam=server="+s.ipam.address)
	return nil
}

// CutRemoteIPAM ends all connections to the remote IPAM and blocks new ones, or allows them again. It needs
// Options.RemoteIPAM.
func (s *Sandbox) CutRemoteIPAM(cut bool) { s.ipam.cutConnections(cut) }

// CatalogAddress returns the address of the catalog's Service, HOST:PORT. It needs Options.Catalog.
func (s *Sandbox) CatalogAddress() string { return s.catalog.address }

func (v *service) cutConnections(cut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut = cut
	if cut && v.cutOff != nil {
		v.cutOff()
		v.open, v.cutOff = nil, nil
	}
}

// next returns the replica for a connection, and the context that ends the connection.
func (v *service) next(ctx context.Context) (string, context.Context, error) {
	replicas, err := v.sandbox.Replicas(v.component)
	if err != nil {
		return "", nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cut || len(replicas) == 0 {
		return "", nil, errors.New("the Service has no endpoint")
	}
	if v.open == nil {
		v.open, v.cutOff = context.WithCancel(ctx)
	}
	v.calls++
	return replicas[v.calls%len(replicas)], v.open, nil
}

// forward connects a connection to a replica's port, or closes it if there is no replica.
func (v *service) forward(ctx context.Context, call net.Conn) {
	defer func() { _ = call.Close() }()
	replica, ctx, err := v.next(ctx)
	if err != nil {
		return
	}
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	address, err := v.sandbox.Address(replica, v.port)
	if err != nil {
		return
	}
	server, err := (&net.Dialer{}).DialContext(dial, "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	// If either side or the sandbox ends, both connections are closed.
	ended := make(chan struct{}, 2)
	join := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go join(server, call)
	go join(call, server)
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
