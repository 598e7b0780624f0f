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
// broker's leader: there is no kube-proxy here. Its address is known before the
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

// forward joins a connection with the leader's port; without one it ends.
func (s *Sandbox) forward(ctx context.Context, call net.Conn) {
	defer func() { _ = call.Close() }()
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	leader, err := s.BrokerLeader(dial)
	if err != nil {
		return
	}
	address, err := s.Address(leader, "ipam")
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
