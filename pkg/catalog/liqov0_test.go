package catalog

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/liqov0"
)

const politoID = "32f0b45b-5c06-4cc4-84b6-03a323ffc93d"

// polito is a ForeignCluster of Liqo v0.x, including fields that must not be shown.
func polito() *unstructured.Unstructured {
	return marked(&unstructured.Unstructured{Object: map[string]any{
		"kind": "ForeignCluster", "apiVersion": "discovery.liqo.io/v1alpha1",
		"metadata": map[string]any{
			"name": "polito-labs-79eba8", "labels": map[string]any{"discovery.liqo.io/cluster-id": politoID},
		},
		"spec": map[string]any{
			"clusterIdentity":        map[string]any{"clusterID": politoID, "clusterName": "polito-labs"},
			"outgoingPeeringEnabled": "Yes", "foreignAuthUrl": "https://194.116.77.112:31520",
		},
		"status": map[string]any{"apiServerUrl": "https://192.0.2.1:6443"},
	}})
}

func virtualNode(name, cluster string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": cluster},
	}}
}

func catalogV0(t *testing.T, change ...func(*Config)) (*apiServer, *requester) {
	t.Helper()
	other := &unstructured.Unstructured{Object: map[string]any{
		"kind": "ForeignCluster", "apiVersion": "discovery.liqo.io/v1alpha1", "metadata": map[string]any{"name": "other"},
		"spec": map[string]any{"clusterIdentity": map[string]any{"clusterID": "other-id", "clusterName": "other"}},
	}}
	api := newAPIServer(t, polito(), other, virtualNode("liqo-polito-labs", politoID))
	url, _ := running(t, api, append(change, func(cfg *Config) { cfg.LiqoV0 = true })...)
	return api, &requester{t, url}
}

func clustersOf(t *testing.T, r *reply) []unstructured.Unstructured {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NotContains(t, r.body, planted)
	var objects []map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &objects), r.body)
	list := make([]unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		list = append(list, unstructured.Unstructured{Object: object})
	}
	return list
}

func TestClustersOfLiqoV0(t *testing.T) {
	_, client := catalogV0(t)
	for token, details := range map[string]bool{"": false, "powerless": false, "operator": true} {
		list := clustersOf(t, client.do(call{"GET", "/api/clusters", "", token}))
		require.Len(t, list, 2)
		assert.Equal(t, "other", list[0].GetName())
		assert.Empty(t, list[0].GetAnnotations(), "it has no virtual node")
		fc := list[1]
		assert.Equal(t, "discovery.liqo.io/v1alpha1", fc.GetAPIVersion())
		assert.Equal(t, "ForeignCluster", fc.GetKind())
		assert.Equal(t, map[string]string{"discovery.liqo.io/cluster-id": politoID}, fc.GetLabels())
		assert.Equal(t, map[string]string{liqov0.EnabledAnnotation: "true"}, fc.GetAnnotations())
		address, _, _ := unstructured.NestedString(fc.Object, "spec", "foreignAuthUrl")
		assert.Equal(t, "https://194.116.77.112:31520", address, "a client peers with it")
		_, has := fc.Object["status"]
		assert.Equal(t, details, has, token)
	}
}

func TestReadAuthWithLiqoV0(t *testing.T) {
	_, client := catalogV0(t, func(cfg *Config) { cfg.Access.ReadAuth = true })
	assert.Equal(t, http.StatusUnauthorized, client.do(call{"GET", "/api/clusters", "", ""}).status)
	assert.Equal(t, http.StatusForbidden, client.do(call{"GET", "/api/clusters", "", "powerless"}).status)
	assert.Len(t, clustersOf(t, client.do(call{"GET", "/api/clusters", "", "operator"})), 2)
}

func TestToggleOfLiqoV0(t *testing.T) {
	api, client := catalogV0(t)
	path := "/api/toggle?id=" + politoID + "&enable=false"
	for name, tc := range map[string]struct {
		call
		status int
	}{
		"nobody":             {call{"POST", path, "", ""}, http.StatusUnauthorized},
		"nobody by GET":      {call{"GET", path, "", ""}, http.StatusUnauthorized},
		"without the right":  {call{"POST", path, "", "powerless"}, http.StatusForbidden},
		"no such cluster":    {call{"POST", "/api/toggle?id=none&enable=false", "", "operator"}, http.StatusNotFound},
		"no virtual node":    {call{"POST", "/api/toggle?id=other-id&enable=false", "", "operator"}, http.StatusNotFound},
		"neither yes nor no": {call{"POST", "/api/toggle?id=other-id&enable=perhaps", "", "operator"}, http.StatusBadRequest},
		"no id":              {call{"POST", "/api/toggle?enable=true", "", "operator"}, http.StatusBadRequest},
		"another method":     {call{"DELETE", path, "", "operator"}, http.StatusNotFound},
		"another path":       {call{"GET", "/api/v1/providers", "", "operator"}, http.StatusNotFound},
	} {
		r := client.do(tc.call)
		assert.Equal(t, tc.status, r.status, "%s: %s", name, r.body)
	}
	hidden := client.do(call{"POST", path, "", "powerless"})
	unknown := client.do(call{"POST", "/api/toggle?id=none&enable=false", "", "powerless"})
	assert.Equal(t, unknown.body, hidden.body, "the answer does not tell which clusters there are")
	require.Empty(t, api.wrote())

	// By its id, and by its name.
	for enable, id := range map[string]string{"false": politoID, "true": "polito-labs-79eba8"} {
		r := client.do(call{"GET", "/api/toggle?id=" + id + "&enable=" + enable, "", "operator"})
		require.Equal(t, http.StatusOK, r.status, r.body)
		assert.JSONEq(t, `{"id":"`+politoID+`","enabled":`+enable+`}`, r.body)
		require.Eventually(t, func() bool {
			list := clustersOf(t, client.do(call{"GET", "/api/clusters", "", ""}))
			return list[1].GetAnnotations()[liqov0.EnabledAnnotation] == enable
		}, 10*time.Second, 10*time.Millisecond)
	}
	assert.Equal(t, []string{"PATCH /api/v1/nodes/liqo-polito-labs", "PATCH /api/v1/nodes/liqo-polito-labs"}, api.wrote())
}

func TestAnonymousToggleOfLiqoV0(t *testing.T) {
	api, client := catalogV0(t, func(cfg *Config) { cfg.Access.AnonymousToggle = true })
	r := client.do(call{"GET", "/api/toggle?id=" + politoID + "&enable=false", "", ""})
	require.Equal(t, http.StatusOK, r.status, r.body)
	assert.Len(t, api.wrote(), 1)
}
