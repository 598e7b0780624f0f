package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestBrokerNeedsLiqoV1(t *testing.T) {
	v1 := []string{"apps/v1", "core.liqo.io/v1beta1", "authentication.liqo.io/v1beta1", "offloading.liqo.io/v1beta1"}
	for name, tc := range map[string]struct {
		serves []string
		want   string
	}{
		"v1":            {serves: v1},
		"both":          {serves: append([]string{"virtualkubelet.liqo.io/v1alpha1"}, v1...)},
		"none":          {[]string{"apps/v1"}, "does not serve core.liqo.io/v1beta1: install Liqo v1.2 in the broker's cluster"},
		"not all of it": {v1[:3], "does not serve offloading.liqo.io/v1beta1"},
		"another version of it": {
			[]string{"core.liqo.io/v1alpha1", "authentication.liqo.io/v1alpha1", "offloading.liqo.io/v1alpha1"},
			"does not serve core.liqo.io/v1beta1",
		},
		"v0.x": {
			[]string{"virtualkubelet.liqo.io/v1alpha1", "offloading.liqo.io/v1alpha1", "discovery.liqo.io/v1alpha1"},
			"serves virtualkubelet.liqo.io and not core.liqo.io/v1beta1: Liqo v0.x is installed, and the broker needs Liqo v1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis" {
					http.NotFound(w, r)
					return
				}
				list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
				for _, served := range tc.serves {
					group, version, _ := strings.Cut(served, "/")
					list.Groups = append(list.Groups, metav1.APIGroup{
						Name: group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: served, Version: version}},
					})
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(list)
			}))
			t.Cleanup(server.Close)
			err := requireLiqo(t.Context(), &rest.Config{Host: server.URL})
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
	t.Run("no answer", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		require.NoError(t, requireLiqo(t.Context(), &rest.Config{Host: server.URL}))
	})
	t.Run("no right", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
		t.Cleanup(server.Close)
		require.NoError(t, requireLiqo(t.Context(), &rest.Config{Host: server.URL}))
	})
}
