package provider

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
)

// The remote cluster's audit log shows our user agent, as the home cluster's does, even if the Secret sets another one.
func TestEveryClientHasTheUserAgentOfHome(t *testing.T) {
	heard := map[string][]string{}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard[r.UserAgent()] = append(heard[r.UserAgent()], r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	})
	home, server := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer home.Close()
	defer server.Close()
	cfg := runConfig(t, home.URL)
	cfg.Home.UserAgent = "ours/v1"
	clients := remoteClients(t, &cfg, server)

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

// remoteClients returns the clients of a virtual kubelet whose remote cluster is the server.
func remoteClients(t *testing.T, cfg *Config, server *httptest.Server) connect.Clients {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	remote, err := remoteOf(t, cfg, server.URL+`", certificate-authority-data: "`+base64.StdEncoding.EncodeToString(ca))
	require.NoError(t, err)
	clients, err := connect.New(rest.CopyConfig(cfg.Home), remote)
	require.NoError(t, err)
	return clients
}

// remoteOf returns the config from a kubeconfig that contains the text as its server.
func remoteOf(t *testing.T, cfg *Config, server string) (*rest.Config, error) {
	t.Helper()
	identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, fake.NewClientset(), cfg.Home, cfg.HomeCluster, nil)
	return remoteConfig(cfg, secretOf(cfg, server), identities)
}

// secretOf returns the Secret with a kubeconfig that contains the text as its server.
func secretOf(cfg *Config, server string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.TenantNamespace, Name: cfg.KubeconfigSecretName},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "` + server + `"}}]
`)},
	}
}

func TestARemoteClusterIsReachedByHTTPSOnly(t *testing.T) {
	cfg := runConfig(t, "http://home")
	for server, want := range map[string]string{
		"https://192.0.2.1:6443":                                        "",
		"https://192.0.2.1:6443/k8s/clusters/c":                         "",
		`https://192.0.2.1:6443", proxy-url: "http://10.70.0.7:8118`:    "",
		"http://internal:8080/prefix":                                   "is not an https URL",
		"https://user:word@internal":                                    "contains a user name",
		`https://192.0.2.1:6443", insecure-skip-tls-verify: true, x: "`: "insecure-skip-tls-verify",
	} {
		_, err := remoteOf(t, &cfg, server)
		if want == "" {
			require.NoError(t, err, server)
		} else {
			require.ErrorContains(t, err, want, server)
		}
	}
}

// Liqo's reflectors and its node get their connections from the same config.
func TestNoRemoteClientFollowsARedirect(t *testing.T) {
	asked := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer inside.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(inside.URL, http.StatusFound))
	defer server.Close()
	cfg := runConfig(t, inside.URL)
	clients := remoteClients(t, &cfg, server)
	stream := func(subresource string) *url.URL {
		return clients.Remote.CoreV1().RESTClient().Post().Resource("pods").Namespace("ns").Name("p").SubResource(subresource).URL()
	}
	for name, call := range map[string]func() error{
		"list": func() error {
			_, err := clients.Remote.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"watch": func() error {
			_, err := clients.RemoteLiqo.OffloadingV1beta1().ShadowPods("ns").Watch(t.Context(), metav1.ListOptions{})
			return err
		},
		"usage": func() error {
			_, err := clients.RemoteMetrics("ns").Get(t.Context(), "p", metav1.GetOptions{})
			return err
		},
		"log": func() error {
			_, err := clients.Remote.CoreV1().Pods("ns").GetLogs("p", &corev1.PodLogOptions{}).Stream(t.Context())
			return err
		},
		"metrics": func() error {
			_, err := kubeletapi.RemoteScrape(clients.Remote, kubeletapi.MetricsV1, "home")(t.Context(), &url.URL{Path: "/metrics"})
			return err
		},
		"exec": func() error { // As Liqo's pod reflector opens exec and attach.
			executor, err := remotecommand.NewSPDYExecutor(clients.RemoteConfig, http.MethodPost, stream("exec"))
			require.NoError(t, err)
			return executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		},
		"port-forward": func() error { // As Liqo's does.
			transport, upgrader, err := spdy.RoundTripperFor(clients.RemoteConfig)
			require.NoError(t, err)
			dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, stream("portforward"))
			_, _, err = dialer.Dial("portforward.k8s.io")
			return err
		},
		"ping": func() error { // As Liqo's node provider does.
			client, err := discovery.NewDiscoveryClientForConfig(clients.RemoteConfig)
			require.NoError(t, err)
			_, err = client.RESTClient().Get().AbsPath("/livez").DoRaw(t.Context())
			return err
		},
	} {
		require.ErrorContains(t, call(), "the provider redirects to", name)
	}
	require.False(t, asked)
}

// The wrappers of the config's transport must not hide from package untrusted that a connection is for a stream:
// closing the body of such an answer reads all of it.
func TestAnAnswerToExecWithoutEndIsCut(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	defer server.CloseClientConnections() // The handler writes until then.
	cfg := runConfig(t, "http://home")
	clients := remoteClients(t, &cfg, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	target := clients.Remote.CoreV1().RESTClient().Post().Resource("pods").Namespace("ns").Name("p").SubResource("exec").URL()
	executor, err := remotecommand.NewSPDYExecutor(clients.RemoteConfig, http.MethodPost, target)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard}) }()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "unable to upgrade connection")
	case <-ctx.Done():
		server.CloseClientConnections()
		require.Fail(t, "it is read without end")
	}
}
