package provider

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
)

// The remote cluster's audit log names who calls, as that of the home cluster does, whatever the Secret says.
func TestEveryClientHasTheUserAgentOfHome(t *testing.T) {
	heard := map[string][]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard[r.UserAgent()] = append(heard[r.UserAgent()], r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	cfg := runConfig(t, server.URL)
	cfg.Home.UserAgent = "ours/v1"
	local := fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.TenantNamespace, Name: cfg.KubeconfigSecretName},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "` + server.URL + `"}}]
`)},
	})
	identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, local, cfg.Home, cfg.HomeCluster, nil)
	remote, err := remoteConfig(t.Context(), &cfg, local, identities)
	require.NoError(t, err)
	clients, err := NewClients(rest.CopyConfig(cfg.Home), remote)
	require.NoError(t, err)

	for _, call := range []func() error{
		func() error {
			_, err := clients.Local.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
			return err
		},
		func() error {
			_, err := clients.Remote.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
			return err
		},
		func() error {
			_, err := clients.LocalLiqo.OffloadingV1beta1().VirtualNodes("ns").Get(t.Context(), "v", metav1.GetOptions{})
			return err
		},
		func() error {
			_, err := clients.RemoteLiqo.OffloadingV1beta1().ShadowPods("ns").Get(t.Context(), "p", metav1.GetOptions{})
			return err
		},
		func() error {
			_, err := clients.RemoteMetrics("ns").Get(t.Context(), "p", metav1.GetOptions{})
			return err
		},
	} {
		require.Error(t, call(), "the server has nothing")
	}
	require.Len(t, heard["ours/v1"], 5)
	require.Len(t, heard, 1, "%v", heard)
}
