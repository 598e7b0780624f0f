package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// controlServer receives commands from other processes on a Unix socket in the sandbox's directory.
type controlServer struct {
	// down is closed when the owner receives the request to end the sandbox.
	down chan struct{}
}

const controlTimeout = 3 * time.Minute

func (s *Sandbox) serveControl() (*controlServer, error) {
	listener, err := net.Listen("unix", filepath.Join(s.dir, controlFile))
	if err != nil {
		return nil, err
	}
	c := &controlServer{down: make(chan struct{})}
	mux := http.NewServeMux()
	command := func(name string, do func(ctx context.Context, q url.Values) error) {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			if err := do(r.Context(), r.URL.Query()); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	command("freeze", func(_ context.Context, q url.Values) error { return s.Freeze(q.Get("target")) })
	command("resume", func(_ context.Context, q url.Values) error { return s.Resume(q.Get("target")) })
	command("kill", func(_ context.Context, q url.Values) error { return s.Kill(q.Get("target")) })
	command("restart", func(ctx context.Context, q url.Values) error { return s.Restart(ctx, q.Get("target")) })
	command("link", func(ctx context.Context, q url.Values) error {
		return s.Link(ctx, q.Get("a"), q.Get("b"), q.Get("state") == "up")
	})
	command("down", func(context.Context, url.Values) error {
		select {
		case <-c.down:
		default:
			close(c.down)
		}
		return nil
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.Status())
	})
	s.serve(mux, listener)
	return c, nil
}

// serve serves until the sandbox ends.
func (s *Sandbox) serve(handler http.Handler, listener net.Listener) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	s.background.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("server at %s: %w", listener.Addr(), err)
		}
		return nil
	})
	s.background.Go(func() error {
		<-s.runCtx.Done()
		return server.Close()
	})
}

// DownRequested is closed when another process has asked to end the sandbox.
func (s *Sandbox) DownRequested() <-chan struct{} { return s.control.down }

// Call sends a command to the owner of a running sandbox and returns its answer.
func Call(ctx context.Context, name, command string, args url.Values) ([]byte, error) {
	if _, err := ReadState(name); err != nil {
		return nil, err
	}
	dir, err := dirOf(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, controlFile))
		},
	}}
	method := http.MethodPost
	if command == "status" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://sandbox/"+command+"?"+args.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sandbox %q does not answer: %w", name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}
