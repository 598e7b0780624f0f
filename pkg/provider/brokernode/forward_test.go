package brokernode

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The broker counts on it that a creation has taken effect by then, or never will.
func TestAnAPIServerIsToldHowLongACreationMayTake(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
		assert.NoError(t, err)
		assert.Less(t, timeout, v1alpha1.CreationTimeout)
		assert.Greater(t, timeout, v1alpha1.CreationTimeout/2)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("fieldManager"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"metadata":{"name":"a","uid":"there"}}`))
	}))
	defer server.Close()
	client, err := liqoclient.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	at := client.OffloadingV1beta1()
	ctx, cancel := context.WithTimeout(t.Context(), v1alpha1.CreationTimeout)
	defer cancel()
	created, err := timely{at.ShadowPods("ns"), at.RESTClient()}.Create(ctx,
		&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}, metav1.CreateOptions{FieldManager: "reflection"})
	require.NoError(t, err)
	require.EqualValues(t, "there", created.UID)
	require.Equal(t, []string{"POST /apis/offloading.liqo.io/v1beta1/namespaces/ns/shadowpods reflection"}, asked)
}
