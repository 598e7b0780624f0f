package plugin

import (
	"net/http"
	"sync"
	"time"
)

// serverClock compares the clock of the API server with the local one, by the header Date of its answers.
type serverClock struct {
	now func() time.Time

	mu sync.Mutex
	// difference is how far the server's clock is ahead; guarded by mu.
	difference time.Duration
	// known is set after the first answer with a date; guarded by mu.
	known bool
}

// ahead returns by how much the clock of the API server is ahead of the local one; false before the first answer.
func (c *serverClock) ahead() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.difference, c.known
}

func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil {
			c.observe(response.Header.Get("Date"))
		}
		return response, err
	})
}

// observe reads a date, which has whole seconds: the server's clock is up to a second later.
func (c *serverClock) observe(date string) {
	server, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.difference, c.known = server.Add(time.Second/2).Sub(c.now()), true
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
