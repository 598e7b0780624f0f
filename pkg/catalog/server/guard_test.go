package server

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
)

func TestEveryAnswerHasTheHeadersThatBrowsersHeed(t *testing.T) {
	c := start(t)
	for _, in := range []call{
		{path: "/"},
		{path: "/nothing"},
		{path: "/panic"},
		{path: "/api/v1/providers"},
		{path: "/api/v1/nothing"},
		{path: "/api/clusters"},
		{path: "/api/v1/placements"},
		{path: "/api/toggle"},
		{path: "/api/v1/me", token: "bad"},
		{method: "DELETE", path: "/api/v1/me"},
	} {
		h := c.do(in).header
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'", in.path)
		require.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"))
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
		require.NotEmpty(t, h.Get("Strict-Transport-Security"))
		require.Empty(t, h.Get("Access-Control-Allow-Origin"))
		require.Empty(t, h.Get("Set-Cookie"))
	}
}

func TestCachingOfAnswers(t *testing.T) {
	c := start(t)
	for path, want := range map[string][2]string{ // By a stranger, by an operator.
		"/api/clusters":             {"no-cache", "private, no-cache"},
		"/api/v1/providers":         {"no-cache", "private, no-cache"},
		"/api/v1/providers/p1":      {"no-cache", "private, no-cache"},
		"/api/v1/openapi.json":      {"no-cache", "no-cache"},
		"/api/v1/me":                {"no-store", "no-store"},
		"/api/v1/placements":        {"no-store", "no-store"},
		"/api/v1/flows":             {"no-store", "no-store"},
		"/api/v1/policies":          {"no-store", "no-store"},
		"/api/v1/providers?limit=0": {"no-store", "no-store"},
	} {
		for i, token := range []string{"", "operator"} {
			got := c.do(call{path: path, token: token})
			require.Equal(t, want[i], got.header.Get("Cache-Control"), path)
			require.Contains(t, got.header.Values("Vary"), "Authorization", path)
		}
	}
}

func TestAnAnswerIsGivenOnce(t *testing.T) {
	c := start(t)
	first := c.do(call{path: "/api/v1/providers"})
	tag := first.header.Get("ETag")
	require.Regexp(t, `^W/"[0-9a-f]{32}"$`, tag)
	for name, tc := range map[string]struct {
		match, path, method string
		want                int
	}{
		"the same":                {match: tag, want: http.StatusNotModified},
		"one of several":          {match: `"x", ` + tag, want: http.StatusNotModified},
		"as if it were a strong":  {match: strings.TrimPrefix(tag, "W/"), want: http.StatusNotModified},
		"any":                     {match: "*", want: http.StatusNotModified},
		"by HEAD":                 {match: tag, method: "HEAD", want: http.StatusNotModified},
		"another":                 {match: `W/"x"`, want: http.StatusOK},
		"of something else":       {match: tag, path: "/api/v1/providers?limit=1", want: http.StatusOK},
		"of something that fails": {match: "*", path: "/api/v1/providers/px", want: http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.path == "" {
				tc.path = "/api/v1/providers"
			}
			got := c.do(call{method: tc.method, path: tc.path, header: map[string]string{"If-None-Match": tc.match}})
			require.Equal(t, tc.want, got.status)
			if tc.want == http.StatusNotModified {
				require.Empty(t, got.body)
				require.Equal(t, tag, got.header.Get("ETag"))
			}
		})
	}
	c.view.set(providerOf("p1", 2))
	require.NotEqual(t, tag, c.do(call{path: "/api/v1/providers"}).header.Get("ETag"))
	write := call{method: "PUT", path: "/api/v1/providers/p1/enabled", body: `{"enabled":true}`, token: "operator"}
	require.Empty(t, c.do(write).header.Get("ETag"))
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	c := start(t)
	plain := c.do(call{path: "/api/v1/providers", token: "operator"})
	got := c.do(call{path: "/api/v1/providers", token: "operator", header: map[string]string{"Accept-Encoding": "gzip"}})
	require.Equal(t, "gzip", got.header.Get("Content-Encoding"))
	require.Equal(t, plain.header.Get("ETag"), got.header.Get("ETag"))
	require.Contains(t, strings.Join(got.header.Values("Vary"), ","), "Accept-Encoding")
	unpacked, err := gzip.NewReader(strings.NewReader(got.body))
	require.NoError(t, err)
	body, err := io.ReadAll(unpacked)
	require.NoError(t, err)
	require.Equal(t, plain.body, string(body))

	got = c.do(call{
		path: "/api/v1/providers", token: "operator",
		header: map[string]string{"Accept-Encoding": "gzip", "If-None-Match": plain.header.Get("ETag")},
	})
	require.Equal(t, http.StatusNotModified, got.status)
	require.Empty(t, c.do(call{path: "/api/v1/me", header: map[string]string{"Accept-Encoding": "gzip"}}).header.Get("Content-Encoding"))
}

func TestWhatIsWrongWithARequest(t *testing.T) {
	c := start(t)
	d := documentOf(t, c)
	json := func(path, body string) call { return call{method: "POST", path: path, body: body, token: "operator"} }
	for name, tc := range map[string]struct {
		call
		status int
		at     string
	}{
		"a parameter that is not known": {call{path: "/api/v1/providers?colour=red"}, 422, "query.colour"},
		"one that another route knows":  {call{path: "/api/v1/providers/p1?limit=1"}, 422, "query.limit"},
		"one that is given twice":       {call{path: "/api/v1/providers?limit=1&limit=2"}, 422, "query.limit"},
		"and differs in nothing":        {call{path: "/api/v1/providers?limit=1&limit=1"}, 422, "query.limit"},
		"no query":                      {call{path: "/api/v1/providers?limit=%zz"}, 422, "query"},
		"semicolons in it":              {call{path: "/api/v1/providers?limit=1;q=2"}, 422, "query"},
		"too few":                       {call{path: "/api/v1/providers?limit=0"}, 422, "query.limit"},
		"too many":                      {call{path: "/api/v1/providers?limit=501"}, 422, "query.limit"},
		"no number":                     {call{path: "/api/v1/providers?limit=ten"}, 422, "query.limit"},
		"neither true nor false":        {call{path: "/api/v1/providers?ready=maybe"}, 422, "query.ready"},
		"no id": {
			call{path: "/api/v1/providers?consumer=../x", token: "operator"}, 422, "query.consumer",
		},
		"a text that is too long": {call{path: "/api/v1/providers?q=" + strings.Repeat("x", 257)}, 422, "query.q"},
		"another list's token":    {call{path: "/api/v1/providers?continue=forged"}, 422, "query.continue"},
		"no pod":                  {call{path: "/api/v1/explain?namespace=web-c1", token: "operator"}, 422, "query.pod"},
		"a phase that is none":    {call{path: "/api/v1/placements?phase=Done", token: "operator"}, 422, "query.phase"},
		"no body":                 {call{method: "POST", path: "/api/v1/explain", token: "operator"}, 400, ""},
		"no JSON":                 {json("/api/v1/explain", "{"), 400, "body"},
		"an unknown field":        {json("/api/v1/explain", `{"namespace":"web-c1","colour":"red"}`), 422, "body.colour"},
		"one of the policy": {
			json("/api/v1/explain", `{"namespace":"web-c1","policy":{"colour":"red"}}`), 422, "body.policy.colour",
		},
		"another type": {json("/api/v1/explain", `{"namespace":1}`), 422, "body.namespace"},
		"no quantity": {
			json("/api/v1/explain", `{"namespace":"web-c1","requests":{"cpu":"many"}}`), 422, "body.requests.cpu",
		},
		"less than nothing": {
			json("/api/v1/explain", `{"namespace":"web-c1","requests":{"cpu":"-1"}}`), 422, "body.requests.cpu",
		},
		"no resource": {
			json("/api/v1/explain", `{"namespace":"web-c1","requests":{"c p u":"1"}}`), 422, "body.requests.c p u",
		},
		"a filter that does not compile": {
			json("/api/v1/explain", `{"namespace":"web-c1","policy":{"filter":"provider."}}`), 422, "body.policy.filter",
		},
		"a duration that is none": {
			json("/api/v1/explain", `{"namespace":"web-c1","policy":{"pendingTimeout":"soon"}}`), 422, "body",
		},
		"a body that is too large": {json("/api/v1/explain", strings.Repeat(" ", middleware.MaxBody)+"{}"), 413, ""},
		"a body of another kind": {
			call{
				method: "POST", path: "/api/v1/explain", body: "{}", token: "operator",
				header: map[string]string{"Content-Type": "text/plain"},
			},
			415, "",
		},
		"a write of another kind": {
			call{
				method: "PUT", path: "/api/v1/providers/p1/enabled", body: "{}", token: "operator",
				header: map[string]string{"Content-Type": "text/plain"},
			},
			415, "",
		},
		"a selection of another kind": {
			call{
				method: "PUT", path: "/api/v1/providers/p1/selected", body: "{}", token: "operator",
				header: map[string]string{"Content-Type": "text/plain"},
			},
			415, "",
		},
		"a URL that is too long":     {call{path: "/api/v1/providers?q=" + strings.Repeat("x", middleware.MaxURL)}, 414, ""},
		"a method that is not there": {call{method: "DELETE", path: "/api/v1/providers"}, 405, ""},
		"a token that is not known":  {call{path: "/api/v1/providers", token: "forged"}, 401, ""},
		"an old client's toggle twice over": {
			call{method: "POST", path: "/api/toggle?id=p1&id=p2&enable=true", token: "operator"}, 400, "query.id",
		},
		"a toggle to something else": {
			call{method: "POST", path: "/api/toggle?id=p1&enable=yes", token: "operator"}, 400, "query.enable",
		},
		"a toggle to nothing": {
			call{method: "POST", path: "/api/toggle?id=p1", token: "operator"}, 400, "query.enable",
		},
		"a toggle for an invalid consumer": {
			call{method: "POST", path: "/api/toggle?id=p1&enable=true&consumer=..%2fx", token: "operator"},
			400,
			"query.consumer",
		},
		"one by GET": {
			call{path: "/api/toggle?id=p1&enable=true&consumer=X", token: "operator"}, 400, "query.consumer",
		},
		"a toggle of nothing": {
			call{method: "POST", path: "/api/toggle?enable=true", token: "operator"}, 400, "query.id",
		},
		"a path that leads out of the API":        {call{path: "/api/v1/../../etc/passwd"}, 404, ""},
		"a provider whose name is a path":         {call{path: "/api/v1/providers/..%2f..%2fsecrets"}, 404, ""},
		"a provider whose name is longer than so": {call{path: "/api/v1/providers/" + strings.Repeat("x", 64)}, 422, "path.id"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.do(tc.call)
			if template := c.templateOf(tc.call); template != "" {
				require.NoError(t, d.check(tc.method, template, got), got.body)
			}
			if got.status == http.StatusTemporaryRedirect || got.status == http.StatusMovedPermanently {
				got = c.do(call{path: got.header.Get("Location")})
			}
			require.Equal(t, tc.status, got.status, got.body)
			if got.header.Get("Content-Type") == "text/plain; charset=utf-8" {
				return // Not the API's any more.
			}
			_, at := got.problem(t)
			if tc.at != "" {
				require.Contains(t, at, tc.at, got.body)
			}
		})
	}
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/clusters?_=1"}).status, "clients of old add what they like")
	got := c.do(call{path: "/api/clusters", header: map[string]string{"X-Long": strings.Repeat("x", maxHeader+8192)}})
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, got.status)
}

func TestPagesOfOtherOriginsDoNotWrite(t *testing.T) {
	c := start(t)
	foreign := []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"},
	}
	for _, in := range []call{
		{method: "PUT", path: "/api/v1/providers/p1/enabled", body: `{"enabled":false}`, token: "operator"},
		{method: "PUT", path: "/api/v1/providers/p1/selected", body: `{"selected":false}`, certificate: "c1/liqo.io"},
		{method: "POST", path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io"},
		{method: "POST", path: "/api/v1/explain", body: `{"namespace":"web-c1"}`, certificate: "c1/liqo.io"},
		{method: "GET", path: "/api/toggle?id=p1&enable=false", token: "operator"},
	} {
		for _, header := range foreign {
			in.header = header
			got := c.do(in)
			require.Equal(t, http.StatusForbidden, got.status, "%s %s %v", in.method, in.path, header)
			got.problem(t)
		}
		in.header = map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": c.url}
		require.Equal(t, http.StatusOK, c.do(in).status, "%s %s", in.method, in.path)
	}
}

func TestAPanicIsAnAnswerAndALogLine(t *testing.T) {
	c := start(t)
	got := c.do(call{path: "/panic"})
	require.Equal(t, http.StatusInternalServerError, got.status)
	detail, _ := got.problem(t)
	require.NotContains(t, detail, "on purpose")
	require.Contains(t, c.log.String(), "on purpose")
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/providers"}).status)
}

func TestNothingIsSaidBeforeAllIsKnown(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) { c.unsynced = true })
	for _, path := range []string{"/api/v1/providers", "/api/v1/events", "/api/clusters", "/api/toggle?id=p1&enable=true"} {
		got := c.do(call{path: path, token: "operator"})
		require.Equal(t, http.StatusServiceUnavailable, got.status, path)
		require.Equal(t, "1", got.header.Get("Retry-After"))
		got.problem(t)
	}
}

func TestCallersAboveTheirRateWait(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) {
		c.server.Allowances = caller.NewAllowances(caller.Limits{PerSecond: 0.01, Burst: 8, Streams: 1, TotalStreams: 1}, nil,
			clock.RealClock{})
	})
	for range 8 {
		require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/providers"}).status)
	}
	got := c.do(call{path: "/api/v1/providers"})
	require.Equal(t, http.StatusTooManyRequests, got.status)
	require.Regexp(t, `^[1-9][0-9]*$`, got.header.Get("Retry-After"))
	got.problem(t)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/providers", token: "operator"}).status, "who is known is not of the host")
	require.Equal(t, http.StatusUnauthorized, c.do(call{path: "/api/v1/providers", token: "forged"}).status, "a token is reviewed once")
	require.Equal(t, http.StatusTooManyRequests, c.do(call{path: "/api/v1/providers", token: "forged"}).status)

	in := call{path: "/api/v1/explain?namespace=web-c1&pod=pod-of-c1", certificate: "c1/liqo.io"}
	require.Equal(t, http.StatusOK, c.do(in).status)
	require.Equal(t, http.StatusTooManyRequests, c.do(in).status, "an explanation counts for five")
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/me", certificate: "c1/liqo.io"}).status)
}

// byName are the calls that name an object and need a right to it.
func byName(name string) []call {
	return []call{
		{path: "/api/v1/placements?namespace=" + name, token: "powerless"},
		{path: "/api/v1/explain?namespace=" + name + "&pod=p", token: "powerless"},
		{method: "POST", path: "/api/v1/explain", body: `{"namespace":"` + name + `"}`, token: "powerless"},
		{method: "PUT", path: "/api/v1/providers/" + name + "/enabled", body: `{"enabled":true}`, token: "powerless"},
		{method: "POST", path: "/api/toggle?enable=true&id=" + name, token: "powerless"},
		{path: "/api/toggle?enable=true&id=" + name, token: "powerless"},
		{path: "/api/v1/flows?consumer=" + name, token: "powerless"},
	}
}

func TestInventedNamesCauseNoReviews(t *testing.T) {
	c := start(t)
	for i, in := range byName("first") {
		require.Equal(t, http.StatusForbidden, c.do(in).status, i)
	}
	asked := len(c.kube.Actions())
	for n := range 10 {
		for _, in := range byName(fmt.Sprint("invented-", n)) {
			require.Equal(t, http.StatusForbidden, c.do(in).status, in.path)
		}
	}
	require.Len(t, c.kube.Actions(), asked)
}

// scarce is a catalog that allows each caller 25 reviews by the API server, and no more: its clock does not advance.
func scarce(t *testing.T) *catalogUnderTest {
	t.Helper()
	return start(t, func(c *catalogUnderTest) {
		limits := caller.Limits{PerSecond: 50, Burst: 10000, Streams: 1, TotalStreams: 1}
		c.server.Allowances = caller.NewAllowances(limits, nil, testclock.NewFakeClock(moment))
	})
}

// A caller without rights gets the same answers, at the same rate, for existing and for other names.
func TestCallersWithoutRightsCannotLearnWhatExists(t *testing.T) {
	names := map[string]func(*catalogUnderTest, string){
		"namespace": func(*catalogUnderTest, string) {},
		"provider": func(c *catalogUnderTest, name string) {
			c.view.set(providerOf(name, 0))
		},
		"cluster": func(c *catalogUnderTest, name string) {
			cluster := clusterOf("id-" + name)
			cluster.Name = name
			c.view.set(providerOf("id-"+name, 0), cluster)
		},
		"consumer": func(*catalogUnderTest, string) {},
	}
	for kind, add := range names {
		t.Run(kind, func(t *testing.T) {
			answers := func(exists bool) (all []string) {
				c := scarce(t)
				for n := range 30 {
					name := fmt.Sprintf("name-%02d", n)
					if exists {
						c.view.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, tenantOf(name))
						add(c, name)
					}
					for _, in := range byName(name) {
						got := c.do(in)
						all = append(all, fmt.Sprint(in.method, in.path, got.status, got.header.Get("Retry-After"), got.body))
					}
				}
				return all
			}
			known, unknown := answers(true), answers(false)
			require.Equal(t, unknown, known)
			require.Contains(t, known[0], "403")
			require.Contains(t, known[len(known)-1], "429", "the limit is exceeded, with the same answer for both")
		})
	}
}

func TestExhaustedReviewsDoNotAffectOthers(t *testing.T) {
	c := scarce(t)
	for n := range 100 {
		name := fmt.Sprint("name-", n)
		c.view.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, tenantOf(name))
		in := byName(name)[n%6]
		c.do(in)
	}
	reviews := 0
	for _, action := range c.kube.Actions() {
		if action.GetResource().Resource == "subjectaccessreviews" {
			reviews++
		}
	}
	require.LessOrEqual(t, reviews, 25)
	require.Equal(t, http.StatusTooManyRequests, c.do(call{path: "/api/v1/placements?namespace=web-c1", token: "powerless"}).status)
	require.Equal(t, http.StatusForbidden, c.do(call{path: "/api/v1/placements", token: "powerless"}).status,
		"a cached right needs no review")
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/placements?namespace=web-c1", token: "namespace"}).status)
}

func TestFilesAreCounted(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) {
		limits := caller.Limits{PerSecond: 50, Burst: 4, Streams: 1, TotalStreams: 1}
		c.server.Allowances = caller.NewAllowances(limits, nil, testclock.NewFakeClock(moment))
	})
	for range 40 {
		require.Equal(t, http.StatusNotFound, c.do(call{path: "/index.html"}).status)
	}
	got := c.do(call{path: "/index.html"})
	require.Equal(t, http.StatusTooManyRequests, got.status)
	require.Equal(t, "1", got.header.Get("Retry-After"))
	got.problem(t)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/providers"}).status, "the API has its own")
}

// A page must load several times at once, for people behind one proxy.
func TestAPageIsLoadedSeveralTimesAtOnce(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir("../dashboard/static", func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files++
		}
		return err
	}))
	allowances := caller.NewAllowances(caller.Limits{PerSecond: 50, Burst: 100}, nil, testclock.NewFakeClock(moment))
	for range 20 * files {
		require.Zero(t, allowances.TakeFile("192.0.2.1"))
	}
}

func TestAnExplanationIsCountedBeforeAnybodyIsAsked(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) {
		limits := caller.Limits{PerSecond: 0.01, Burst: 7, Streams: 1, TotalStreams: 1}
		c.server.Allowances = caller.NewAllowances(limits, nil, clock.RealClock{})
	})
	require.Equal(t, http.StatusForbidden, c.do(call{path: "/api/v1/explain?namespace=web-c1&pod=p", token: "powerless"}).status)
	asked := len(c.kube.Actions())
	require.Equal(t, http.StatusTooManyRequests, c.do(call{path: "/api/v1/explain?namespace=web-c2&pod=p", token: "powerless"}).status)
	require.Len(t, c.kube.Actions(), asked)
}

func TestTheAPIServerIsNotAskedAboutEveryRequest(t *testing.T) {
	c := start(t)
	for range 20 {
		for _, path := range []string{"/api/v1/placements", "/api/v1/providers", "/api/v1/policies", "/api/v1/me"} {
			require.Equal(t, http.StatusOK, c.do(call{path: path, token: "operator"}).status)
			require.Equal(t, http.StatusUnauthorized, c.do(call{path: path, token: "forged"}).status)
		}
	}
	require.Equal(t, 2, c.reviews, "of the two tokens")
	require.Less(t, len(c.kube.Actions()), 12, "and once for every right")
}

func TestAnAPIServerThatIsGone(t *testing.T) {
	c := start(t)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/placements", token: "operator"}).status)
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/placements", token: "operator"}).status, "who is known stays so")
	got := c.do(call{path: "/api/v1/placements", token: "powerless"})
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	detail, _ := got.problem(t)
	require.NotContains(t, detail, "connection refused", "that is for the log")
	require.Contains(t, c.log.String(), "connection refused")
}

func TestAMissingPermissionIsNamed(t *testing.T) {
	log := &lines{}
	p := problem.Of(log.logger(), context.DeadlineExceeded)
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	p = problem.Of(log.logger(), &auth.MissingPermissionError{Remedy: "kubectl grant"})
	require.Equal(t, http.StatusInternalServerError, p.Status)
	require.Contains(t, p.Detail, "kubectl grant")
	p = problem.Of(log.logger(), errors.New("an unexpected fault"))
	require.Equal(t, http.StatusInternalServerError, p.Status)
	require.NotContains(t, p.Detail, "unexpected fault")
	require.Contains(t, log.String(), "unexpected fault")
}

// A client that closes its connection is no fault of the API server.
func TestARequestThatWasCanceledIsNotLogged(t *testing.T) {
	for _, err := range []error{context.Canceled, fmt.Errorf("%w: %w", caller.ErrUnavailable, context.Canceled)} {
		log := &lines{}
		require.Equal(t, http.StatusServiceUnavailable, problem.Of(log.logger(), err).Status)
		require.Empty(t, log.String())
	}
	log := &lines{}
	err := fmt.Errorf("%w: %w", caller.ErrUnavailable, context.DeadlineExceeded)
	require.Equal(t, http.StatusServiceUnavailable, problem.Of(log.logger(), err).Status)
	require.NotEmpty(t, log.String())
}

func TestMetricsCountByRoute(t *testing.T) {
	c := start(t)
	registry := prometheus.NewRegistry()
	require.NoError(t, c.server.Metrics.Register(registry, c.server.Allowances.Streams))
	c.do(call{path: "/api/v1/providers/p1"})
	c.do(call{path: "/api/v1/providers/px"})
	c.do(call{path: "/api/v1/nothing/" + time.Now().String()[:4]})
	c.do(call{method: "BREW", path: "/api/v1/me"})
	c.do(call{path: "/index.html"})
	c.do(call{path: "/api/v1/me", token: "forged"})
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "liqo_") {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := family.GetName()
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				counts[labels] = h.GetSampleCount()
			} else {
				counts[labels] = uint64(m.GetCounter().GetValue())
			}
		}
	}
	const d = "liqo_catalog_request_duration_seconds "
	require.Equal(t, map[string]uint64{
		d + "200 GET /api/v1/providers/{id}": 1, d + "404 GET /api/v1/providers/{id}": 1, d + "404 GET other": 1,
		d + "405 other other": 1, d + "404 GET dashboard": 1, d + "401 GET /api/v1/me": 1,
		"liqo_catalog_refusals_total token": 1, "liqo_catalog_streams": 0,
	}, counts)
}
