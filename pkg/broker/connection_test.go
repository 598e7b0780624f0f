package broker

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
)

func TestProvidersHearWhoTheBrokerIs(t *testing.T) {
	heard := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard[r.UserAgent()]++
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	home := fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "kubeconfig"},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "` + server.URL + `"}}]
`)},
	})
	identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil)
	c := newConnections(home, identities, time.Second, "ours/v1")
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p1"}}
	vn.Spec.ClusterID = "p1"
	vn.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig"}
	require.NoError(t, c.refresh(t.Context(), vn, time.Now()))

	provider := c.get("p1")
	_, err := provider.probe(t.Context())
	require.Error(t, err)
	_, err = provider.running(t.Context(), "ns")
	require.Error(t, err)
	_, err = provider.metrics.MetricsV1beta1().PodMetricses("ns").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	require.Equal(t, map[string]int{"ours/v1": 3}, heard)
}
