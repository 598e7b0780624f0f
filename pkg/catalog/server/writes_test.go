package server

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

// enabled is the value of a provider at the API server.
func (c *catalogUnderTest) enabled(id string) bool {
	var provider v1alpha1.ProviderCluster
	require.NoError(c.t, c.live.Get(c.t.Context(), client.ObjectKey{Name: id}, &provider))
	require.Equal(c.t, map[string]string{"price": "0.04", "region": "eu"}, provider.Spec.Attributes, "nothing else is written")
	return provider.Spec.Enabled == nil || *provider.Spec.Enabled
}

// selected is the value of a consumer's selection at the API server.
func (c *catalogUnderTest) selected(consumer, id string) bool {
	chosen, err := orchestrator.Get(c.t.Context(), c.live, consumer)
	require.NoError(c.t, err)
	return chosen.Has(id)
}

func TestWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		call
		// enabled, c1 and c2 are the values of p1 afterwards, for all callers and for the consumers.
		enabled, c1, c2 bool
		anonymous       bool
	}{
		"a consumer selects for itself": {
			call:    call{method: "PUT", path: "/api/v1/providers/p1/selected", body: `{"selected":false}`, certificate: "c1/liqo.io"},
			enabled: true, c2: true,
		},
		"an operator selects for a consumer": {
			call:    call{method: "PUT", path: "/api/v1/providers/p1/selected?consumer=c2", body: `{"selected":false}`, token: "operator"},
			enabled: true, c1: true,
		},
		"an operator disables for everybody": {
			call: call{method: "PUT", path: "/api/v1/providers/p1/enabled", body: `{"enabled":false}`, token: "operator"},
			c1:   true, c2: true,
		},
		"a consumer toggles for itself": {
			call: call{method: "POST", path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io"}, enabled: true, c2: true,
		},
		"and by GET, with a token": {
			call: call{path: "/api/toggle?id=p1&enable=false", token: "people-c1"}, enabled: true, c2: true,
		},
		"an operator toggles for everybody": {
			call: call{method: "POST", path: "/api/toggle?id=p1&enable=false", token: "operator"}, c1: true, c2: true,
		},
		"and by GET, with a token, as clients of old do": {
			call: call{path: "/api/toggle?id=p1&enable=false", token: "operator"}, c1: true, c2: true,
		},
		"an operator toggles for a consumer": {
			call: call{method: "POST", path: "/api/toggle?id=p1&enable=false&consumer=c1", token: "operator"}, enabled: true, c2: true,
		},
		"by the name of the ForeignCluster": {
			call: call{method: "POST", path: "/api/toggle?id=cluster-p1&enable=false", token: "operator"}, c1: true, c2: true,
		},
		"what is so already is no fault": {
			call: call{method: "POST", path: "/api/toggle?id=p1&enable=true", token: "operator"}, enabled: true, c1: true, c2: true,
		},
		"nor for a consumer": {
			call: call{method: "POST", path: "/api/toggle?id=p1&enable=true", token: "people-c1"}, enabled: true, c1: true, c2: true,
		},
		"everybody may, where that was asked for": {
			call: call{path: "/api/toggle?id=p1&enable=false"}, c1: true, c2: true, anonymous: true,
		},
		"also by POST": {
			call: call{method: "POST", path: "/api/toggle?id=p1&enable=false"}, c1: true, c2: true, anonymous: true,
		},
		"then a consumer still selects for itself": {
			call: call{path: "/api/toggle?id=p1&enable=false", token: "people-c1"}, enabled: true, c2: true, anonymous: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, func(c *catalogUnderTest) { c.server.Access.AnonymousToggle = tc.anonymous })
			for range 2 { // The second time changes nothing.
				got := c.do(tc.call)
				require.Equal(t, http.StatusOK, got.status, got.body)
				require.Equal(t, tc.enabled, c.enabled("p1"), "enabled")
				require.Equal(t, tc.c1, c.selected("c1", "p1"), "selected by c1")
				require.Equal(t, tc.c2, c.selected("c2", "p1"), "selected by c2")
			}
			require.True(t, c.enabled("p2"))
		})
	}
}

func TestAWriteIsAnsweredAsItWillBeAndLogged(t *testing.T) {
	c := start(t)
	var provider api.Provider
	got := c.do(call{method: "PUT", path: "/api/v1/providers/p1/selected", body: `{"selected":false}`, certificate: "c1/liqo.io"})
	require.NoError(t, json.Unmarshal([]byte(got.body), &provider))
	require.False(t, *provider.Selected)
	got = c.do(call{method: "PUT", path: "/api/v1/providers/p1/enabled", body: `{"enabled":false}`, token: "operator"})
	require.NoError(t, json.Unmarshal([]byte(got.body), &provider))
	require.False(t, provider.Enabled)
	got = c.do(call{method: "POST", path: "/api/toggle?id=cluster-p2&enable=false", token: "people-c1"})
	require.JSONEq(t, `{"id":"p2","enabled":false,"consumer":"c1"}`, got.body)
	for _, line := range []string{
		`"consumer"="c1" "provider"="p1" "selected"=false "caller"="c1"`,
		`"provider"="p1" "enabled"=false "caller"="system:serviceaccount:ops:operator"`,
		`"consumer"="c1" "provider"="p2" "selected"=false "caller"="system:serviceaccount:liqo-tenant-c1:people"`,
	} {
		require.Contains(t, c.log.String(), line)
	}
}

func TestAWriteThatFails(t *testing.T) {
	providers := schema.GroupResource{Group: "brokering.liqo.io", Resource: "providerclusters"}
	for name, tc := range map[string]struct {
		err    error
		status int
	}{
		"another client was faster":           {kerrors.NewConflict(providers, "p1", nil), http.StatusConflict},
		"the provider has just gone":          {kerrors.NewNotFound(providers, "p1"), http.StatusNotFound},
		"the catalog itself may not":          {kerrors.NewForbidden(providers, "p1", nil), http.StatusInternalServerError},
		"the API server is slow":              {kerrors.NewTimeoutError("slow", 1), http.StatusServiceUnavailable},
		"and does not answer within our time": {context.DeadlineExceeded, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, func(c *catalogUnderTest) {
				c.server.Live = interceptor.NewClient(c.live.(client.WithWatch), interceptor.Funcs{
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						return tc.err
					},
				})
			})
			got := c.do(call{method: "PUT", path: "/api/v1/providers/p1/enabled", body: `{"enabled":false}`, token: "operator"})
			require.Equal(t, tc.status, got.status, got.body)
			got.problem(t)
		})
	}
}

func TestASelectionOfAnotherFormIsNotChanged(t *testing.T) {
	c := start(t)
	require.NoError(t, c.live.Create(t.Context(), &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: orchestrator.PolicyName("c1")}, Spec: v1alpha1.PlacementPolicySpec{Consumers: []string{"c1"}},
	}))
	got := c.do(call{method: "PUT", path: "/api/v1/providers/p1/selected", body: `{"selected":false}`, certificate: "c1/liqo.io"})
	require.Equal(t, http.StatusConflict, got.status, got.body)
	detail, _ := got.problem(t)
	require.Contains(t, detail, "is not the selection of consumer c1")
}
