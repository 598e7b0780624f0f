package dashboard

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// served is a handler on an address that stays the same when it is stopped and started again.
type served struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
}

func serve(t *testing.T, handler http.Handler) *served {
	s := &served{t: t, handler: handler, address: "127.0.0.1:0"}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

func (s *served) Start() {
	listener, err := net.Listen("tcp", s.address)
	require.NoError(s.t, err)
	s.address = listener.Addr().String()
	s.server = &http.Server{Handler: s.handler}
	go s.server.Serve(listener)
}

func (s *served) Stop() {
	_ = s.server.Close()
}
