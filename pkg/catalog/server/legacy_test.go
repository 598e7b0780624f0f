package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestClustersAreKubernetesObjects(t *testing.T) {
	c := start(t)
	got := c.do(call{path: "/api/clusters"})
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.body), &list))
	require.Len(t, list, 3)
	for _, item := range list {
		require.Equal(t, "ForeignCluster", item["kind"])
		require.Equal(t, "core.liqo.io/v1beta1", item["apiVersion"])
	}
	require.Equal(t, "cluster-p1", list[0]["metadata"].(map[string]any)["name"])
	for _, id := range []string{"p1", "p2", "p3"} {
		c.view.remove(clusterOf(id))
	}
	require.Equal(t, "[]", compact(t, c.do(call{path: "/api/clusters"}).body), "an array, even of none")
}

func TestForeignClustersByCaller(t *testing.T) {
	for readAuth, want := range map[bool]map[string][]string{
		false: {
			stranger: {"p1", "p2", "p3"}, powerless: {"p1", "p2", "p3"}, consumer: {"c1", "p1", "p2", "p3"},
			operator: {"c1", "c2", "p1", "p2", "p3"},
		},
		true: {
			consumer: {"c1", "p1", "p2", "p3"}, people: {"c1", "p1", "p2", "p3"}, other: {"c2", "p1", "p2", "p3"},
			operator: {"c1", "c2", "p1", "p2", "p3"}, ofOne: {"c1", "c2", "p1", "p2", "p3"},
		},
	} {
		c := start(t, func(c *catalogUnderTest) {
			c.server.Access.ReadAuth = readAuth
			for _, id := range []string{"c1", "c2"} {
				c.objects = append(c.objects, clusterOf(id))
			}
		})
		for who, ids := range want {
			got := c.do(call{path: "/api/clusters", token: callers[who].token, certificate: callers[who].certificate})
			var list []liqov1beta1.ForeignCluster
			require.NoError(t, json.Unmarshal([]byte(got.body), &list), got.body)
			var seen []string
			for i := range list {
				seen = append(seen, string(list[i].Spec.ClusterID))
			}
			require.Equal(t, ids, seen, "%s, --read-auth=%t", who, readAuth)
		}
	}
}

func TestAnonymousCallersSeeNoDetails(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) {
		p1 := providerOf("p1", 1)
		p1.Spec.Attributes["contract"] = "secret-attribute"
		p1.Status.Conditions[0].Message = "secret-message"
		p1.Spec.Prices = []v1alpha1.PriceList{{Currency: "EUR", PerHour: map[corev1.ResourceName]v1alpha1.Decimal{
			"example.com/secret-device": "1",
		}}}
		fc := clusterOf("p1")
		fc.Labels, fc.Annotations = map[string]string{"x": "secret-label"}, map[string]string{"y": "secret-annotation"}
		fc.Status = liqov1beta1.ForeignClusterStatus{
			Role: liqov1beta1.ProviderRole, APIServerURL: "https://secret-address", ForeignProxyURL: "https://secret-proxy",
			Conditions: []liqov1beta1.Condition{{Message: "secret-message"}},
		}
		fc.Status.Modules.Offloading = liqov1beta1.Module{Enabled: true, Conditions: []liqov1beta1.Condition{{Message: "secret-module"}}}
		c.objects = append(slices.DeleteFunc(c.objects, func(o client.Object) bool {
			return o.GetName() == p1.Name || o.GetName() == fc.Name
		}), p1, fc, clusterOf("secret-consumer"))
	})
	for _, path := range []string{
		"/api/clusters", "/api/v1/providers", "/api/v1/providers/p1", "/api/v1/providers/p1/history",
		"/api/v1/providers?q=p1", "/api/v1/me",
	} {
		for _, who := range []string{stranger, powerless} {
			got := c.do(call{path: path, token: callers[who].token, certificate: callers[who].certificate})
			require.Equal(t, http.StatusOK, got.status, got.body)
			require.NotContains(t, got.body, "secret-", "%s sees %s", who, path)
		}
		if path != "/api/v1/me" && path != "/api/v1/providers/p1/history" {
			require.Contains(t, c.do(call{path: path, token: "operator"}).body, "secret-", path)
		}
	}
	require.NotContains(t, c.do(call{path: "/api/v1/providers?q=secret"}).body, "p1", "a search cannot find what is not shown")
	require.Contains(t, c.do(call{path: "/api/v1/providers?q=secret", token: "operator"}).body, "p1")

	_, lines, closed := c.events(call{})
	defer closed()
	read(t, lines, 3)
	changed := providerOf("p1", 7)
	changed.Status.Conditions[0].Message = "secret-message"
	c.view.set(changed)
	for lines.Scan() && !strings.Contains(lines.Text(), `"pods":7`) {
		require.NotContains(t, lines.Text(), "secret-")
	}
	require.NotContains(t, lines.Text(), "secret-")
	require.Contains(t, lines.Text(), `"pods":7`)
}

func TestAnUnauthenticatedToggleGetsTheRightCommand(t *testing.T) {
	c := start(t)
	for name, tc := range map[string]struct {
		call
		message string
	}{
		"a stranger": {call{path: "/api/toggle?id=p1&enable=false"}, "'https://…/api/toggle?id=p1&enable=false'"},
		"by POST": {
			call{method: "POST", path: "/api/toggle?id=p1&enable=true"}, "'https://…/api/toggle?id=p1&enable=true'",
		},
		"no parameters": {call{path: "/api/toggle"}, "'https://…/api/toggle?id=CLUSTER&enable=true|false'"},
		"parameters of a shell injection": {
			call{path: "/api/toggle?id=%27%3Brm+-rf&enable=%27"}, "'https://…/api/toggle?id=CLUSTER&enable=true|false'",
		},
		"a browser with a certificate": {
			call{path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io"},
			"curl -X POST -H \"Authorization: Bearer $TOKEN\"",
		},
		"an invalid token": {
			call{path: "/api/toggle?id=p1&enable=false", token: "forged"}, "'https://…/api/toggle?id=p1&enable=false'",
		},
		"an invalid token, by POST": {call{method: "POST", path: "/api/toggle?id=p1&enable=false", token: "forged"}, "curl -X POST"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.do(tc.call)
			require.Equal(t, http.StatusUnauthorized, got.status, got.body)
			detail, _ := got.problem(t)
			require.Contains(t, detail, tc.message)
			require.True(t, c.enabled("p1"))
			require.True(t, c.selected("c1", "p1"))
		})
	}
}

func TestHEADChangesNothing(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) { c.server.Access.AnonymousToggle = true })
	for _, token := range []string{"", "operator"} {
		got := c.do(call{method: "HEAD", path: "/api/toggle?id=p1&enable=false", token: token})
		require.Equal(t, http.StatusMethodNotAllowed, got.status)
		require.Equal(t, "GET, POST", got.header.Get("Allow"))
		require.True(t, c.enabled("p1"))
	}
}

// Even with anonymous toggling, a GET that a page of another origin made a browser send is not identified by the
// browser's client certificate.
func TestAnOpenDoorBelievesNoCertificateByGET(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) { c.server.Access.AnonymousToggle = true })
	require.Equal(t, http.StatusForbidden, c.do(call{
		path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io", header: map[string]string{"Sec-Fetch-Site": "cross-site"},
	}).status)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io"}).status)
	require.True(t, c.selected("c1", "p1"))
	require.False(t, c.enabled("p1"))
}
