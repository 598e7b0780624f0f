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

// serveRemoteIPAM is the Service by which consumers reach the remote IPAM of the
// broker's replicas: there is no kube-proxy here. Its address is known before the
// broker runs, so that it can be an argument of the consumers' virtual kubelets.
func (s *Sandbox) serveRemoteIPAM(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("remote IPAM: %w", err)
	}
	s.opts.BrokerArgs = append(s.opts.BrokerArgs, "--with-aggregator")
	s.opts.ConsumerArgs = append(s.opts.ConsumerArgs, "--remote-ipam=server="+listener.Addr().String())
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
			calls.Go(func() { s.forward(s.runCtx, call) })
		}
	})
	return nil
}

// ipamService leads to the replicas of the broker in turn.
type ipamService struct {
	mu    sync.Mutex
	calls int  // How many there were; guarded by mu.
	cut   bool // Whether nothing is let through; guarded by mu.
	// cutOff ends the connections that there are; guarded by mu.
	cutOff context.CancelFunc
	open   context.Context //nolint:containedctx // What cutOff ends; guarded by mu.
}

// CutRemoteIPAM ends all connections with the remote IPAM and lets no more through, or lets them through again.
func (s *Sandbox) CutRemoteIPAM(cut bool) {
	service := &s.ipam
	service.mu.Lock()
	defer service.mu.Unlock()
	service.cut = cut
	if cut && service.cutOff != nil {
		service.cutOff()
		service.open, service.cutOff = nil, nil
	}
}

// next returns the replica for a connection, and when that is to end.
func (s *Sandbox) nextIPAM(ctx context.Context) (string, context.Context, error) {
	replicas, err := s.Replicas(Broker + "/" + BrokerComponent)
	if err != nil {
		return "", nil, err
	}
	service := &s.ipam
	service.mu.Lock()
	defer service.mu.Unlock()
	if service.cut || len(replicas) == 0 {
		return "", nil, errors.New("the Service has no endpoint")
	}
	if service.open == nil {
		service.open, service.cutOff = context.WithCancel(ctx)
	}
	service.calls++
	return replicas[service.calls%len(replicas)], service.open, nil
}

// forward joins a connection with a replica's port; without one it ends.
func (s *Sandbox) forward(ctx context.Context, call net.Conn) {
	defer func() { _ = call.Close() }()
	replica, ctx, err := s.nextIPAM(ctx)
	if err != nil {
		return
	}
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	address, err := s.Address(replica, "ipam")
	if err != nil {
		return
	}
	server, err := (&net.Dialer{}).DialContext(dial, "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	// Whichever side ends, or the sandbox, both connections are closed.
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
