package liqov0

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const catalogNamespace = "liqo-broker"

// catalog runs the catalog in the broker's cluster, as deploy/ installs it.
func (f *federation) catalog(t *testing.T) {
	ctx, c := t.Context(), f.broker
	require.NoError(t, c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: catalogNamespace}}))
	require.NoError(t, c.Apply(ctx, "catalog.yaml", "catalog-liqo-v0.yaml"))
	address, err := c.Address(ctx, catalogNamespace, "liqo-broker-catalog", "catalog")
	require.NoError(t, err)

	// curl http://127.0.0.1:8000/api/clusters, without credentials.
	clusters := f.clusters(t, "http://"+address)
	require.Len(t, clusters, 2)
	provider := clusters[f.provider.ID()]
	assert.Equal(t, "discovery.liqo.io/v1alpha1", provider.GetAPIVersion())
	name, _, _ := unstructured.NestedString(provider.Object, "spec", "clusterIdentity", "clusterName")
	assert.Equal(t, "provider", name)
	url, _, _ := unstructured.NestedString(provider.Object, "spec", "foreignAuthUrl")
	assert.Regexp(t, "^https://127.0.0.1:", url)
	assert.Equal(t, "true", provider.GetAnnotations()["brokering.liqo.io/enabled"])
	assert.Empty(t, clusters[f.consumer.ID()].GetAnnotations(), "it has no virtual node")

	toggle := "/api/toggle?id=" + f.provider.ID() + "&enable="
	plain := get(t, "http://"+address+toggle+"false", "").StatusCode
	assert.Equal(t, http.StatusForbidden, plain, "nothing is written over plain HTTP")
	assert.Equal(t, http.StatusUnauthorized, get(t, "https://"+address+toggle+"false", "").StatusCode)

	// A disabled provider gets no new pods, and its existing pods stay.
	token := f.operator(t)
	pod(t, c, "parity", "stays")
	running(t, c, "parity", "stays")
	require.Equal(t, http.StatusOK, get(t, "https://"+address+toggle+"false", token).StatusCode)
	pod(t, c, "parity", "waits")
	eventually(t, "the new pod is not scheduled", func(ctx context.Context) error { return unschedulable(ctx, f, "waits") })
	running(t, c, "parity", "stays")
	assert.Equal(t, "false", f.clusters(t, "http://"+address)[f.provider.ID()].GetAnnotations()["brokering.liqo.io/enabled"])

	require.Equal(t, http.StatusOK, get(t, "https://"+address+toggle+"true", token).StatusCode)
	running(t, c, "parity", "waits")
	f.onlyCordons(t)
}

// clusters returns the answer of /api/clusters, by id.
func (f *federation) clusters(t *testing.T, base string) map[string]*unstructured.Unstructured {
	t.Helper()
	response := get(t, base+"/api/clusters", "")
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	var objects []map[string]any
	require.NoError(t, json.Unmarshal(body, &objects), string(body))
	clusters := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		id, _, _ := unstructured.NestedString(object, "spec", "clusterIdentity", "clusterID")
		clusters[id] = &unstructured.Unstructured{Object: object}
	}
	return clusters
}

func get(t *testing.T, url, token string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	insecure := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	response, err := insecure.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// operator returns a token of an account that may cordon the virtual node of the provider.
func (f *federation) operator(t *testing.T) string {
	t.Helper()
	ctx, c := t.Context(), f.broker
	meta := metav1.ObjectMeta{Namespace: catalogNamespace, Name: "operator"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"},
			ResourceNames: []string{c.VirtualNode(f.provider)},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "operator"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operator"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
		},
	} {
		require.NoError(t, c.Client.Create(ctx, o))
	}
	token, err := c.Kube.CoreV1().ServiceAccounts(meta.Namespace).
		CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}

func unschedulable(ctx context.Context, f *federation, name string) error {
	var p corev1.Pod
	if err := f.broker.Client.Get(ctx, client.ObjectKey{Namespace: "parity", Name: name}, &p); err != nil {
		return err
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return nil
		}
	}
	return fmt.Errorf("pod %s is on node %q", name, p.Spec.NodeName)
}

// onlyCordons sends requests with the account of the catalog, as an attacker would: the policy of
// deploy/catalog-liqo-v0.yaml denies everything but the cordoning of virtual nodes.
func (f *federation) onlyCordons(t *testing.T) {
	t.Helper()
	config, err := f.broker.ClientConfig("system:serviceaccount:" + catalogNamespace + ":liqo-broker-catalog")
	require.NoError(t, err)
	attacker, err := client.New(config, client.Options{})
	require.NoError(t, err)
	patch := func(name, body string) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return attacker.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(body)))
	}
	virtual := f.broker.VirtualNode(f.provider)
	eventually(t, "the policy is in force", func(context.Context) error {
		if err := patch("broker-host", `{"spec":{"unschedulable":true}}`); err == nil {
			return fmt.Errorf("a node that is not virtual is cordoned")
		}
		return nil
	})
	for what, body := range map[string]string{
		"a label":       `{"metadata":{"labels":{"a":"b"}}}`,
		"an annotation": `{"metadata":{"annotations":{"a":"b"}}}`,
		"a taint":       `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`,
	} {
		assert.ErrorContains(t, patch(virtual, body), "may cordon and uncordon virtual nodes only", what)
	}
	require.NoError(t, patch(virtual, `{"spec":{"unschedulable":false}}`))
}
