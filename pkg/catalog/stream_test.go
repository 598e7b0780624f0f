package catalog

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
)

// events reads a stream, line by line, until it is closed.
func (c *catalogUnderTest) events(in call) (response *http.Response, lines *bufio.Scanner, closed func()) {
	c.t.Helper()
	in.path = "/api/v1/events" + in.path
	ctx, cancel := context.WithCancel(c.t.Context())
	response = c.open(ctx, in)
	return response, bufio.NewScanner(response.Body), func() {
		cancel()
		response.Body.Close()
	}
}

func read(t *testing.T, lines *bufio.Scanner, n int) []string {
	t.Helper()
	var all []string
	for range n {
		require.True(t, lines.Scan(), lines.Err())
		all = append(all, lines.Text())
	}
	return all
}

func TestAStreamOfChanges(t *testing.T) {
	c := start(t)
	response, lines, closed := c.events(call{certificate: "c1/liqo.io", header: map[string]string{"Accept-Encoding": "gzip"}})
	defer closed()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	require.Empty(t, response.Header.Get("Content-Encoding"))
	require.Equal(t, []string{"event: sync", `data: {"version":"v0"}`, ""}, read(t, lines, 3))

	c.view.stream <- federation.Change{Event: api.EventPlacementGone, Data: api.Gone{Namespace: "ns", Pod: "line\nbreak"}}
	require.Equal(t, []string{"event: placement-gone", `data: {"namespace":"ns","pod":"line\nbreak"}`, ""}, read(t, lines, 3))
	require.Equal(t, 1, c.server.allowances.Streams())

	closed()
	require.Eventually(t, func() bool { return c.view.subscriptions() == 0 && c.server.allowances.Streams() == 0 }, 10*time.Second, time.Millisecond)
}

func TestWhatAStreamShowsToWhom(t *testing.T) {
	for name, tc := range map[string]struct {
		call
		want federation.Scope
	}{
		"a stranger, no pods":          {call{}, federation.Scope{}},
		"nobody in particular, none":   {call{token: "nobody"}, federation.Scope{}},
		"who claims too much, none":    {call{certificate: "c1/liqo.io,c2"}, federation.Scope{}},
		"a consumer, its own":          {call{certificate: "c1/liqo.io"}, federation.Scope{Consumer: "c1"}},
		"an operator, all":             {call{token: "operator"}, federation.Scope{All: true}},
		"an operator, of one consumer": {call{path: "?consumer=c2", token: "operator"}, federation.Scope{Consumer: "c2"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			_, lines, closed := c.events(tc.call)
			defer closed()
			read(t, lines, 1)
			require.Equal(t, []federation.Scope{tc.want}, c.view.scopes)
		})
	}
	c := start(t)
	require.Equal(t, http.StatusForbidden, c.do(call{path: "/api/v1/events?consumer=c2", certificate: "c1/liqo.io"}).status)
	require.Equal(t, http.StatusUnauthorized, c.do(call{path: "/api/v1/events?consumer=c2"}).status)
	require.Zero(t, c.view.subscriptions())
}

func TestStreamsAreLimited(t *testing.T) {
	c := start(t) // Two for each, three in all.
	for range 2 {
		_, lines, closed := c.events(call{})
		defer closed()
		read(t, lines, 1)
	}
	got := c.do(call{path: "/api/v1/events"})
	require.Equal(t, http.StatusTooManyRequests, got.status)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	got.problem(t)
	_, lines, closed := c.events(call{token: "operator"})
	defer closed()
	read(t, lines, 1)
	require.Equal(t, http.StatusTooManyRequests, c.do(call{path: "/api/v1/events", certificate: "c1/liqo.io"}).status)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/providers"}).status, "other requests are not")
	require.Equal(t, http.StatusOK, c.do(call{method: "HEAD", path: "/api/v1/events"}).status, "nor is what is no stream")
}

func TestStreamsOverHTTP2(t *testing.T) {
	c := start(t)
	c.http[""] = c.ca.client(t, "")
	c.http[""].Transport.(*http.Transport).ForceAttemptHTTP2 = true
	response, lines, closed := c.events(call{})
	defer closed()
	require.Equal(t, "HTTP/2.0", response.Proto)
	require.Equal(t, []string{"event: sync", `data: {"version":"v0"}`, ""}, read(t, lines, 3))
	c.view.stream <- federation.Change{Event: api.EventProviderGone, Data: api.Gone{ID: "p1"}}
	require.Equal(t, "event: provider-gone", read(t, lines, 1)[0])
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/providers"}).status, "by the same connection")
}

// writer is an answer whose deadlines can be set.
type writer struct {
	*httptest.ResponseRecorder
	mu       sync.Mutex
	deadline time.Time // Of writes; guarded by mu.
	endless  bool      // Reads are; guarded by mu.
	fail     bool
}

func (w *writer) SetReadDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endless = at.IsZero()
	return nil
}

func (w *writer) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = at
	return nil
}

func (w *writer) Write(data []byte) (int, error) {
	if w.fail {
		return 0, context.DeadlineExceeded
	}
	return w.ResponseRecorder.Write(data)
}

func streaming(view *fakeView) *server {
	return &server{
		log: (&lines{}).logger(), version: "v0", clock: clock.RealClock{}, view: view, subscribe: view.Subscribe, metrics: newMetrics(),
		allowances: caller.NewAllowances(caller.Limits{PerSecond: 1, Burst: 1, Streams: 1, TotalStreams: 1}, clock.RealClock{}),
		rights:     &caller.Rights{Tenants: view},
	}
}

func TestAStreamIsHeardWhileNothingHappensAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newFakeView()
		view.stream = make(chan federation.Change) // Of this bubble.
		s, w, begin := streaming(view), &writer{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		go func() {
			time.Sleep(20 * time.Second)
			view.stream <- federation.Change{Event: api.EventProviderGone, Data: api.Gone{ID: "p1"}}
		}()
		s.events(w, httptest.NewRequest(http.MethodGet, eventsPath, http.NoBody))
		require.Equal(t, streamTimeout, time.Since(begin))
		require.True(t, w.endless, "the deadline of the request does not end it")
		events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
		require.Equal(t, []string{
			"event: sync\ndata: {\"version\":\"v0\"}", ": still here", "event: provider-gone\ndata: {\"id\":\"p1\"}", ": still here",
		}, events[:4])
		// One each 15 s, but for the event 20 s after the beginning, and the end.
		require.Len(t, events, 1+1+1+38)
		require.Zero(t, view.subscriptions())
		require.Zero(t, s.allowances.Streams())
	})
}

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newFakeView()
		s, w, begin := streaming(view), &writer{ResponseRecorder: httptest.NewRecorder(), fail: true}, time.Now()
		s.events(w, httptest.NewRequest(http.MethodGet, eventsPath, http.NoBody))
		require.Zero(t, time.Since(begin))
		require.Equal(t, begin.Add(streamWriteTimeout), w.deadline)
		require.Zero(t, view.subscriptions())
	})
}
