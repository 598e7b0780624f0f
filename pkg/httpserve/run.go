// Package httpserve runs an HTTP server for the lifetime of a context. It has the common parts of servers: a
// self-signed certificate, and limits by key.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// readHeaderTimeout bounds the resources held by a client that never finishes its headers (Slowloris).
	readHeaderTimeout = 10 * time.Second
	// idleTimeout is how long a connection without a request stays open. kube-apiserver's own clients use 90 s.
	idleTimeout = 2 * time.Minute
	// requestsOfConnection is the number of requests that an HTTP/2 connection may have at once, writeByteTimeout the
	// longest time for which the client may accept no byte of pending data. The connection has no other deadline:
	// deadlines of requests end their streams by a frame, which waits behind the unread data.
	requestsOfConnection = 100
	writeByteTimeout     = 10 * time.Second
	// shutdownGrace is how long requests in flight may go on after the context has ended.
	shutdownGrace = 5 * time.Second
)

// Listen opens addr for Run. The error names the flag that addr comes from.
func Listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", flag, addr, err)
	}
	return ln, nil
}

// ServeOn serves HTTP at an address until ctx ends, as Run does. The error names the flag that the address comes from.
func ServeOn(ctx context.Context, address, flag string, handler http.Handler) error {
	ln, err := Listen(ctx, address, flag)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // It was not opened because ctx has ended.
	case err != nil:
		return err
	}
	return Run(ctx, &http.Server{Handler: handler}, ln) //nolint:gosec // Run sets ReadHeaderTimeout.
}

// Run serves on ln until ctx ends, and owns both: it returns nil once the server has shut down because ctx ended, and
// an error if it stopped for any other reason. Without timeouts and limits (Limit) it sets its own; the HTTP/2 limits
// are the same for all servers. With srv.TLSConfig set it serves HTTPS. The context of every request descends from ctx,
// so that streams (followed logs) end with it.
func Run(ctx context.Context, srv *http.Server, ln net.Listener) error {
	if srv.ReadHeaderTimeout == 0 {
		srv.ReadHeaderTimeout = readHeaderTimeout
	}
	if srv.IdleTimeout == 0 {
		srv.IdleTimeout = idleTimeout
	}
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: requestsOfConnection, WriteByteTimeout: writeByteTimeout}
	if _, has := ln.(limited); !has {
		ln = Limit(ln, connectionsOfHost, connections, nil)
	}
	srv.BaseContext = func(net.Listener) context.Context { return ctx }

	served := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			served <- srv.ServeTLS(ln, "", "")
			return
		}
		served <- srv.Serve(ln)
	}()

	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}

	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		// The grace period is over: close the remaining connections.
		_ = srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	}
	return nil
}
