package catalog

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
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
	c.view.clusters = nil
	require.Equal(t, "[]", compact(t, c.do(call{path: "/api/clusters"}).body), "an array, even of none")
}

func TestWhoseClustersEachCallerSees(t *testing.T) {
	for readAuth, want := range map[bool]map[string][]string{
		false: {stranger: {"p1", "p2", "p3", "c1", "c2"}, consumer: {"p1", "p2", "p3", "c1", "c2"}},
		true: {
			consumer: {"p1", "p2", "p3", "c1"}, people: {"p1", "p2", "p3", "c1"}, other: {"p1", "p2", "p3", "c2"},
			operator: {"p1", "p2", "p3", "c1", "c2"}, ofOne: {"p1", "p2", "p3", "c1", "c2"},
		},
	} {
		c := start(t, func(c *catalogUnderTest) {
			c.server.access.ReadAuth = readAuth
			for _, id := range []string{"c1", "c2"} {
				c.view.clusters = append(c.view.clusters, liqov1beta1.ForeignCluster{
					ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
				})
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

func TestAToggleWithoutRightIsToldTheRightCall(t *testing.T) {
	c := start(t)
	for name, tc := range map[string]struct {
		call
		says string
	}{
		"a stranger":                        {call{path: "/api/toggle?id=p1&enable=false"}, "'https://…/api/toggle?id=p1&enable=false'"},
		"by POST":                           {call{method: "POST", path: "/api/toggle?id=p1&enable=true"}, "'https://…/api/toggle?id=p1&enable=true'"},
		"who says nothing":                  {call{path: "/api/toggle"}, "'https://…/api/toggle?id=CLUSTER&enable=true|false'"},
		"who would have it say more":        {call{path: "/api/toggle?id=%27%3Brm+-rf&enable=%27"}, "'https://…/api/toggle?id=CLUSTER&enable=true|false'"},
		"a browser with a certificate":      {call{path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io"}, "curl -X POST -H \"Authorization: Bearer $TOKEN\""},
		"somebody with an invalid token":    {call{path: "/api/toggle?id=p1&enable=false", token: "forged"}, "'https://…/api/toggle?id=p1&enable=false'"},
		"somebody with one who may by POST": {call{method: "POST", path: "/api/toggle?id=p1&enable=false", token: "forged"}, "curl -X POST"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.do(tc.call)
			require.Equal(t, http.StatusUnauthorized, got.status, got.body)
			detail, _ := got.problem(t)
			require.Contains(t, detail, tc.says)
			require.True(t, c.enabled("p1"))
			require.True(t, c.selected("c1", "p1"))
		})
	}
}

func TestHEADChangesNothing(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) { c.server.access.AnonymousToggle = true })
	for _, token := range []string{"", "operator"} {
		got := c.do(call{method: "HEAD", path: "/api/toggle?id=p1&enable=false", token: token})
		require.Equal(t, http.StatusMethodNotAllowed, got.status)
		require.Equal(t, "GET, POST", got.header.Get("Allow"))
		require.True(t, c.enabled("p1"))
	}
}

// With the door open, what a browser shows by itself still counts for nothing when it is made to GET.
func TestAnOpenDoorBelievesNoCertificateByGET(t *testing.T) {
	c := start(t, func(c *catalogUnderTest) { c.server.access.AnonymousToggle = true })
	require.Equal(t, http.StatusForbidden, c.do(call{
		path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io", header: map[string]string{"Sec-Fetch-Site": "cross-site"},
	}).status)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/toggle?id=p1&enable=false", certificate: "c1/liqo.io"}).status)
	require.True(t, c.selected("c1", "p1"))
	require.False(t, c.enabled("p1"))
}
