package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The callers of the tables.
var callers = map[string]call{
	"a stranger":                             {},
	"a consumer, by its certificate":         {certificate: "c1/liqo.io"},
	"a consumer, by a service account":       {token: "people-c1"},
	"a consumer that claims to be another":   {certificate: "c1/liqo.io,c2"},
	"another consumer":                       {certificate: "c2/liqo.io"},
	"the virtual kubelet of a consumer":      {certificate: "slice-abc/c1"},
	"an operator":                            {token: "operator"},
	"an operator of one namespace":           {token: "namespace"},
	"a user without rights":                  {token: "powerless"},
	"a certificate of another CA":            {certificate: "?c1/liqo.io"},
	"a consumer whose certificate has ended": {certificate: "!c1/liqo.io"},
}

const (
	stranger  = "a stranger"
	consumer  = "a consumer, by its certificate"
	people    = "a consumer, by a service account"
	forger    = "a consumer that claims to be another"
	other     = "another consumer"
	kubelet   = "the virtual kubelet of a consumer"
	operator  = "an operator"
	ofOne     = "an operator of one namespace"
	powerless = "a user without rights"
	foreign   = "a certificate of another CA"
	ended     = "a consumer whose certificate has ended"
	yes       = http.StatusOK
	unknown   = http.StatusUnauthorized
	forbidden = http.StatusForbidden
	missing   = http.StatusNotFound
)

// everybody expects a status for all callers; those in except get another one.
func everybody(status int, except map[string]int) map[string]int {
	all := map[string]int{}
	for name := range callers {
		all[name] = status
	}
	for name, other := range except {
		all[name] = other
	}
	return all
}

// needsCaller is for routes that need a caller: strangers of all kinds get 401.
func needsCaller(others int, except map[string]int) map[string]int {
	all := everybody(others, map[string]int{stranger: unknown, foreign: unknown, ended: unknown, forger: unknown})
	for name, status := range except {
		all[name] = status
	}
	return all
}

func TestRightsOfCallers(t *testing.T) {
	c := start(t)
	body := func(method, path, text string) call { return call{method: method, path: path, body: text} }
	for name, tc := range map[string]struct {
		call call
		want map[string]int
	}{
		"ask who one is":                   {call{path: "/api/v1/me"}, everybody(yes, nil)},
		"read the document":                {call{path: "/api/v1/openapi.json"}, everybody(yes, nil)},
		"list clusters":                    {call{path: "/api/clusters"}, everybody(yes, nil)},
		"list providers":                   {call{path: "/api/v1/providers"}, everybody(yes, nil)},
		"get a provider":                   {call{path: "/api/v1/providers/p1"}, everybody(yes, nil)},
		"get the history of a provider":    {call{path: "/api/v1/providers/p1/history"}, everybody(yes, nil)},
		"get a provider that is not there": {call{path: "/api/v1/providers/px"}, everybody(missing, nil)},
		"list providers on behalf of c1": {
			call{path: "/api/v1/providers?consumer=c1"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, operator: yes}),
		},
		"list providers on behalf of c2": {
			call{path: "/api/v1/providers?consumer=c2"},
			needsCaller(forbidden, map[string]int{other: yes, operator: yes}),
		},
		"on behalf of one that is not": {call{path: "/api/v1/providers?consumer=c9"}, needsCaller(forbidden, nil)},
		"ask who one is for c2": {
			call{path: "/api/v1/me?consumer=c2"}, needsCaller(forbidden, map[string]int{other: yes, operator: yes}),
		},
		"list placements": {
			call{path: "/api/v1/placements"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes}),
		},
		"list placements of c2": {
			call{path: "/api/v1/placements?consumer=c2"},
			needsCaller(forbidden, map[string]int{other: yes, operator: yes}),
		},
		"list placements in web-c1": {
			call{path: "/api/v1/placements?namespace=web-c1"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes, ofOne: yes}),
		},
		"list placements in web-c2": {
			call{path: "/api/v1/placements?namespace=web-c2"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes}),
		},
		"list flows": {
			call{path: "/api/v1/flows"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes}),
		},
		"list policies": {
			call{path: "/api/v1/policies"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes}),
		},
		"have a pod of c1 explained": {
			call{path: "/api/v1/explain?namespace=web-c1&pod=pod-of-c1"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: missing, operator: yes, ofOne: yes}),
		},
		"have a pod of c2 explained": {
			call{path: "/api/v1/explain?namespace=web-c2&pod=pod-of-c2"},
			needsCaller(forbidden, map[string]int{consumer: missing, people: missing, other: yes, operator: yes}),
		},
		"have no pod explained": {
			call{path: "/api/v1/explain?namespace=web-c1&pod=no-pod"},
			needsCaller(forbidden, map[string]int{consumer: missing, people: missing, other: missing, operator: missing, ofOne: missing}),
		},
		"suppose a pod of c1": {
			body("POST", "/api/v1/explain", `{"namespace":"web-c1"}`),
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: missing, operator: yes, ofOne: yes}),
		},
		"suppose a pod nowhere": {
			body("POST", "/api/v1/explain", `{"namespace":"nowhere"}`),
			needsCaller(forbidden, map[string]int{consumer: missing, people: missing, other: missing, operator: missing}),
		},
		"select a provider": {
			body("PUT", "/api/v1/providers/p2/selected", `{"selected":false}`),
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes}),
		},
		"select a provider for c1": {
			body("PUT", "/api/v1/providers/p2/selected?consumer=c1", `{"selected":false}`),
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, operator: yes}),
		},
		"select a provider that is not": {
			body("PUT", "/api/v1/providers/px/selected", `{"selected":false}`),
			needsCaller(forbidden, map[string]int{consumer: missing, people: missing, other: missing}),
		},
		"disable a provider for all": {
			body("PUT", "/api/v1/providers/p2/enabled", `{"enabled":false}`),
			needsCaller(forbidden, map[string]int{operator: yes}),
		},
		"disable one that is not there": {
			body("PUT", "/api/v1/providers/px/enabled", `{"enabled":false}`),
			needsCaller(forbidden, map[string]int{operator: missing}),
		},
		"toggle by POST": {
			call{method: "POST", path: "/api/toggle?id=p3&enable=false"},
			needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes}),
		},
		"toggle one that is not by POST": {
			call{method: "POST", path: "/api/toggle?id=px&enable=false"},
			needsCaller(forbidden, map[string]int{consumer: missing, people: missing, other: missing, operator: missing}),
		},
		"toggle by GET, only with a token": {
			call{path: "/api/toggle?id=p3&enable=false"},
			everybody(unknown, map[string]int{people: yes, operator: yes, ofOne: forbidden, powerless: forbidden}),
		},
		"toggle by GET for c1": {
			call{path: "/api/toggle?id=p3&enable=false&consumer=c1"},
			everybody(unknown, map[string]int{people: yes, operator: yes, ofOne: forbidden, powerless: forbidden}),
		},
		"use a method that is not there": {
			call{method: "DELETE", path: "/api/v1/providers/p1"}, everybody(http.StatusMethodNotAllowed, nil),
		},
		"ask for what is not there":         {call{path: "/api/v1/secrets"}, everybody(missing, nil)},
		"ask for what is above what is not": {call{path: "/api"}, everybody(missing, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, tc.want, len(callers))
			for who, want := range tc.want {
				in := tc.call
				in.token, in.certificate = callers[who].token, callers[who].certificate
				got := c.do(in)
				require.Equal(t, want, got.status, "%s: %s", who, got.body)
				if want != yes {
					got.problem(t)
				}
				if want == unknown {
					require.Contains(t, got.header.Get("WWW-Authenticate"), "Bearer", who)
				}
			}
		})
	}
}

func TestReadAuthClosesTheListOfProviders(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) { c.server.Access.ReadAuth = true })
	want := needsCaller(forbidden, map[string]int{consumer: yes, people: yes, other: yes, operator: yes, ofOne: yes})
	for _, path := range []string{"/api/clusters", "/api/v1/providers", "/api/v1/providers/p1", "/api/v1/providers/p1/history"} {
		for who, status := range want {
			got := c.do(call{path: path, token: callers[who].token, certificate: callers[who].certificate})
			require.Equal(t, status, got.status, "%s %s: %s", who, path, got.body)
		}
	}
	named := needsCaller(forbidden, map[string]int{consumer: yes, people: yes, operator: yes})
	for _, path := range []string{"/api/v1/providers", "/api/v1/providers/p1", "/api/v1/providers/p1/history"} {
		for who, status := range named {
			got := c.do(call{path: path + "?consumer=c1", token: callers[who].token, certificate: callers[who].certificate})
			require.Equal(t, status, got.status, "%s %s: %s", who, path, got.body)
		}
	}
	require.Equal(t, unknown, c.do(call{path: "/api/v1/events"}).status)
	require.Equal(t, yes, c.do(call{path: "/api/v1/me"}).status, "the dashboard asks before anybody has signed in")
}

func TestWhatEachCallerSees(t *testing.T) {
	c := start(t)
	for name, tc := range map[string]struct {
		who, path string
		want      []string
	}{
		"a consumer, its own pods":                    {consumer, "/api/v1/placements", []string{"pod-of-c1"}},
		"a consumer, its own pods, asked for by name": {consumer, "/api/v1/placements?consumer=c1", []string{"pod-of-c1"}},
		"a consumer, nothing in another's namespace":  {consumer, "/api/v1/placements?namespace=web-c2", nil},
		"an operator, everything":                     {operator, "/api/v1/placements", []string{"pod-of-own", "pod-of-c1", "pod-of-c2"}},
		"an operator, one consumer":                   {operator, "/api/v1/placements?consumer=c2", []string{"pod-of-c2"}},
		"an operator of a namespace, what is there":   {ofOne, "/api/v1/placements?namespace=web-c1", []string{"pod-of-c1"}},
		"and only of the consumer asked for":          {ofOne, "/api/v1/placements?namespace=web-c1&consumer=c2", nil},
		"a consumer, its policies and those for all":  {consumer, "/api/v1/policies", []string{"all", "of-both", "of-c1"}},
		"an operator, all policies":                   {operator, "/api/v1/policies", []string{"all", "of-both", "of-c1", "of-c2"}},
		"everybody, the providers":                    {stranger, "/api/v1/providers", []string{"p1", "p2", "p3"}},
		"everybody, those that are ready":             {stranger, "/api/v1/providers?ready=true", []string{"p1", "p2"}},
		"everybody, as many as asked for":             {stranger, "/api/v1/providers?limit=1", []string{"p1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.do(call{path: tc.path, token: callers[tc.who].token, certificate: callers[tc.who].certificate})
			require.Equal(t, yes, got.status, got.body)
			require.Equal(t, tc.want, ids(t, got.body))
		})
	}
}

// The scope limits every list, with any other filters.
func TestTheScopeOfEachQuestion(t *testing.T) {
	c := start(t)
	allPods := []string{"pod-of-own", "pod-of-c1", "pod-of-c2"}
	for name, tc := range map[string]struct {
		call
		want []string
	}{
		"a consumer":                 {call{path: "/api/v1/placements", token: "people-c1"}, []string{"pod-of-c1"}},
		"a consumer, in a namespace": {call{path: "/api/v1/placements?namespace=web-c2", token: "people-c1"}, nil},
		"an operator":                {call{path: "/api/v1/placements", token: "operator"}, allPods},
		"an operator of a namespace": {
			call{path: "/api/v1/placements?namespace=web-c1", token: "namespace"}, []string{"pod-of-c1"},
		},
		"of a namespace, and one consumer":     {call{path: "/api/v1/placements?namespace=web-c1&consumer=c2", token: "namespace"}, nil},
		"who lists all pods, and one consumer": {call{path: "/api/v1/placements?consumer=c2", token: "pods"}, []string{"pod-of-c2"}},
		"who lists all pods":                   {call{path: "/api/v1/placements", token: "pods"}, allPods},
		"who lists all pods, its flows":        {call{path: "/api/v1/flows?consumer=c2", token: "pods"}, []string{"c2"}},
		"who lists all pods, all flows":        {call{path: "/api/v1/flows", token: "pods"}, []string{"", "c1", "c2"}},
		"a consumer, its flows":                {call{path: "/api/v1/flows", certificate: "c2/liqo.io"}, []string{"c2"}},
		"an operator, policies on behalf of one": {
			call{path: "/api/v1/policies?consumer=c2", token: "operator"}, []string{"all", "of-both", "of-c2"},
		},
		"a consumer, policies": {
			call{path: "/api/v1/policies", certificate: "c2/liqo.io"}, []string{"all", "of-both", "of-c2"},
		},
		"an operator, policies": {
			call{path: "/api/v1/policies", token: "operator"}, []string{"all", "of-both", "of-c1", "of-c2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.do(tc.call)
			require.Equal(t, yes, got.status)
			var list struct {
				Items []struct{ Pod, Name, Consumer string }
			}
			require.NoError(t, json.Unmarshal([]byte(got.body), &list))
			var names []string
			for _, item := range list.Items {
				if strings.HasPrefix(tc.path, "/api/v1/flows") {
					names = append(names, item.Consumer)
				} else {
					names = append(names, item.Pod+item.Name)
				}
			}
			require.Equal(t, tc.want, names)
		})
	}
	// A caller that may read pods, but not providers, gets no explanation.
	require.Equal(t, forbidden, c.do(call{path: "/api/v1/explain?namespace=web-c1&pod=pod-of-c1", token: "pods"}).status)
	require.Equal(t, forbidden, c.do(call{path: "/api/v1/policies?consumer=c2", token: "pods"}).status)
}

func TestMe(t *testing.T) {
	c := start(t)
	const nothing = `{"placements":false,"policies":false,"explain":false,"select":false,"enable":false}`
	const served = `,"services":{"version":"v0","node":"liqo-broker"}}`
	for who, want := range map[string]string{
		stranger:  `{"can":` + nothing + served,
		powerless: `{"user":"system:serviceaccount:ops:powerless","can":` + nothing + served,
		kubelet:   `{"user":"slice-abc","can":` + nothing + served,
		forger:    `{"can":` + nothing + served,
		consumer: `{"user":"c1","consumer":"c1",` +
			`"can":{"placements":true,"policies":true,"explain":true,"select":true,"enable":false}` + served,
		operator: `{"user":"system:serviceaccount:ops:operator",` +
			`"can":{"placements":true,"policies":true,"explain":true,"select":false,"enable":true}` + served,
	} {
		t.Run(who, func(t *testing.T) {
			got := c.do(call{path: "/api/v1/me", token: callers[who].token, certificate: callers[who].certificate})
			require.Equal(t, want, compact(t, got.body))
		})
	}
}

// Data of other consumers must be in no answer to a caller that may not see it.
func TestNothingLeaks(t *testing.T) {
	c := start(t)
	paths := []string{
		"/api/clusters", "/api/v1/me", "/api/v1/providers", "/api/v1/providers/p1", "/api/v1/providers/p1/history",
		"/api/v1/placements", "/api/v1/placements?consumer=c2", "/api/v1/placements?namespace=web-c2", "/api/v1/placements?q=pod-of",
		"/api/v1/flows", "/api/v1/flows?consumer=c2", "/api/v1/policies", "/api/v1/policies?consumer=c2",
		"/api/v1/explain?namespace=web-c1&pod=pod-of-c1", "/api/v1/explain?namespace=web-c2&pod=pod-of-c2",
		"/api/v1/explain?namespace=web-c2&pod=pod-of-c2&consumer=c2", "/api/v1/openapi.json", "/api/toggle?id=p1&enable=maybe", "/nothing",
	}
	for who, secrets := range map[string][]string{
		stranger:  {"pod-of", "of-c1", "of-c2", "of-both", `"c1"`, `"c2"`},
		consumer:  {"pod-of-c2", "pod-of-own", "of-c2", `"c2"`},
		forger:    {"pod-of-c2", "pod-of-own", "of-c2", `"c2"`},
		people:    {"pod-of-c2", "pod-of-own", "of-c2", `"c2"`},
		kubelet:   {"pod-of", "of-c1", "of-c2"},
		powerless: {"pod-of", "of-c1", "of-c2"},
		ofOne:     {"pod-of-c2", "pod-of-own", "of-c2"},
		ended:     {"pod-of", "of-c1", "of-c2"},
	} {
		for _, path := range paths {
			got := c.do(call{path: path, token: callers[who].token, certificate: callers[who].certificate})
			for _, secret := range append(secrets, "managedFields", "last-applied", "Bearer operator") {
				// A problem may repeat the caller's own request.
				if !strings.Contains(path, strings.Trim(secret, `"`)) {
					require.NotContains(t, got.body, secret, "%s %s", who, path)
				}
			}
		}
	}
}
