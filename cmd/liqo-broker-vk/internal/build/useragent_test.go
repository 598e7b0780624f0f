package build

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
)

func TestClientsHaveAUserAgent(t *testing.T) {
	var heard string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard = r.UserAgent()
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
`), 0o600))

	built := Of(Unreleased, "")
	config, err := built.RESTConfig(kubeconfig, "explain")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, built.UserAgent("explain"), heard)
}

func TestTheUserAgentNamesVersionPlatformCommitAndRole(t *testing.T) {
	built := Info{Version: "v0.1.0", Commit: "0123456789abcdef0123456789abcdef01234567", Platform: "linux/arm64"}
	require.Equal(t, "liqo-broker-vk/v0.1.0 (linux/arm64) 0123456789ab/broker", built.UserAgent("broker"))
}
