package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
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

	c.view.remove(podOf("c1"))
	require.Equal(t, []string{"event: placement-gone", `data: {"namespace":"web-c1","pod":"pod-of-c1"}`, ""}, read(t, lines, 3))
	require.Equal(t, 1, c.server.Allowances.Streams())

	closed()
	require.Eventually(t, func() bool { return c.streams.count() == 0 && c.server.Allowances.Streams() == 0 }, 10*time.Second,
		time.Millisecond)
}

func TestStreamsByCaller(t *testing.T) {
	all := []string{"pod-of-c1", "pod-of-c2", "pod-of-own"}
	for name, tc := range map[string]struct {
		call
		want []string
	}{
		"a stranger, no pods":          {call{}, nil},
		"a user without rights, none":  {call{token: "powerless"}, nil},
		"who claims too much, none":    {call{certificate: "c1/liqo.io,c2"}, nil},
		"a consumer, its own":          {call{certificate: "c1/liqo.io"}, []string{"pod-of-c1"}},
		"an operator, all":             {call{token: "operator"}, all},
		"an operator, of one consumer": {call{path: "?consumer=c2", token: "operator"}, []string{"pod-of-c2"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			_, lines, closed := c.events(tc.call)
			defer closed()
			read(t, lines, 3)
			for _, consumer := range []string{"c1", "c2", ""} {
				c.view.remove(podOf(consumer))
			}
			p9 := providerOf("p9", 0)
			p9.Spec.Attributes["note"] = "note-of-p9"
			c.view.set(p9) // Which every caller sees, in the same or in a later result.
			var events []string
			for providers, after := 0, -1; providers == 0 || after != 0; {
				line := read(t, lines, 1)[0]
				events = append(events, line)
				if strings.Contains(line, `"p9"`) {
					require.Equal(t, tc.want != nil, strings.Contains(line, "note-of-p9"), "attributes are for those with rights")
					providers++
				}
				after = len(tc.want) - len(podsIn(events))
			}
			require.Equal(t, tc.want, podsIn(events))
		})
	}
	c := start(t)
	require.Equal(t, http.StatusForbidden, c.do(call{path: "/api/v1/events?consumer=c2", certificate: "c1/liqo.io"}).status)
	require.Equal(t, http.StatusUnauthorized, c.do(call{path: "/api/v1/events?consumer=c2"}).status)
	require.Zero(t, c.streams.count())
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
	c.view.remove(providerOf("p1", 0))
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

// streaming is a server with one stream at most, and its view.
func streaming(t *testing.T) (*Server, *subscriptions) {
	o := newObserved(t)
	s := New(Config{
		Log: (&lines{}).logger(), Version: "v0", Clock: clock.RealClock{}, View: o.View, Metrics: middleware.NewMetrics(),
		Allowances: caller.NewAllowances(caller.Limits{PerSecond: 1, Burst: 1, Streams: 1, TotalStreams: 1}, nil, clock.RealClock{}),
		Rights:     &caller.Rights{Tenants: o},
	})
	streams := &subscriptions{view: o}
	s.subscribe = streams.subscribe
	return s, streams
}

func TestAStreamIsHeardWhileNothingHappensAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, streams := streaming(t)
		defer streams.view.run(providerOf("p1", 0))()
		w, begin := &writer{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		go func() {
			time.Sleep(20 * time.Second)
			streams.view.remove(providerOf("p1", 0))
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
		require.Zero(t, streams.count())
		require.Zero(t, s.Allowances.Streams())
	})
}

// Over HTTP/2 the deadline of a write ends the stream even if no write is pending.
func TestAStreamOverHTTP2IsNotEndedByTheDeadlineOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, streams := streaming(t)
		defer streams.view.run(providerOf("p1", 0))()
		local, remote := net.Pipe()
		var serving sync.WaitGroup
		defer serving.Wait()
		defer local.Close()
		serving.Go(func() {
			(&http2.Server{}).ServeConn(remote, &http2.ServeConnOpts{Handler: http.HandlerFunc(s.events)})
		})
		conn, err := (&http2.Transport{}).NewClientConn(local)
		require.NoError(t, err)
		begin := time.Now()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://catalog"+eventsPath, http.NoBody)
		require.NoError(t, err)
		response, err := conn.RoundTrip(request)
		require.NoError(t, err)
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.Equal(t, streamTimeout, time.Since(begin))
	})
}

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, streams := streaming(t)
		w, begin := &writer{ResponseRecorder: httptest.NewRecorder(), fail: true}, time.Now()
		s.events(w, httptest.NewRequest(http.MethodGet, eventsPath, http.NoBody))
		require.Zero(t, time.Since(begin))
		require.Equal(t, begin.Add(streamWriteTimeout), w.deadline)
		require.Zero(t, streams.count())
	})
}

func TestAnEventHasOneLineOfData(t *testing.T) {
	var text bytes.Buffer
	s := &Server{}
	gone := api.Gone{Namespace: "ns", Pod: "line\nbreak"}
	require.NoError(t, s.writeEvent(&text, &view.Change{Event: api.EventPlacementGone, Data: gone}))
	require.Equal(t, "event: placement-gone\ndata: {\"namespace\":\"ns\",\"pod\":\"line\\nbreak\"}\n\n", text.String())
}

// oneChange is a subscription with one change.
type oneChange struct{ view.Change }

func (o oneChange) Next(context.Context) ([]view.Change, error) { return []view.Change{o.Change}, nil }

func (o oneChange) Close() {}

// The JSON that is shared with operators is not shown to anonymous callers, in either order.
func TestAnonymousCallersDoNotShareTheJSONOfOperators(t *testing.T) {
	shown := view.Change{
		Event: api.EventProvider, Data: &api.Provider{ID: "p", Attributes: map[string]string{"note": "secret"}},
		Encoded: &api.Encoded{}, Public: &api.Encoded{},
	}
	for range 2 {
		for _, anonymous := range []bool{false, true} {
			var from changes = oneChange{shown}
			if anonymous {
				from = publicChanges{from}
			}
			list, err := from.Next(t.Context())
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, (&Server{}).writeEvent(&text, &list[0]))
			require.Equal(t, !anonymous, strings.Contains(text.String(), "secret"))
		}
	}
}
