package dashboard

import (
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// served is a handler with an address that stays the same when it is stopped and restarted.
type served struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
	done    chan struct{}
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
	server, done := &http.Server{Handler: s.handler}, make(chan struct{})
	s.server, s.done = server, done
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			assert.NoError(s.t, err)
		}
	}()
}

func (s *served) Stop() {
	assert.NoError(s.t, s.server.Close())
	<-s.done
}

// signedIn opens the dashboard of a catalog in a new browser, with a signed-in user.
func signedIn(t *testing.T, federation *fake, token string) (*tab, *served) {
	t.Helper()
	server := serve(t, federation.handler())
	b := newTab(t, startBrowser(t), "http://"+server.address+"/")
	b.open()
	b.signIn(token)
	return b, server
}

// withoutPage opens a tab that has the dashboard's origin but not the dashboard: for tests of its modules.
func withoutPage(t *testing.T) *tab {
	t.Helper()
	server := serve(t, small().handler())
	b := newTab(t, startBrowser(t), "http://"+server.address+"/")
	b.do(chromedp.Navigate(b.url + "style.css"))
	return b
}
