package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
)

// An API server verifies the certificate of a connection at each request. So when the old one expires, a connection that was
// made with it is refused, and a watch keeps such a connection in use.
func TestARenewedCertificateIsUsedWhileAWatchIsOpen(t *testing.T) {
	for name, watching := range map[string]bool{"without a watch": false, "with a watch": true} {
		t.Run(name, func(t *testing.T) {
			heard := make(chan int64, 100)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") != "" {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
					<-r.Context().Done()
					return
				}
				heard <- r.TLS.PeerCertificates[0].SerialNumber.Int64()
				w.WriteHeader(http.StatusNotFound)
			}))
			server.EnableHTTP2 = true
			server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
			server.StartTLS()
			defer func() {
				server.CloseClientConnections()
				server.Close()
			}()

			cfg := runConfig(t, "http://home")
			local := fake.NewClientset(kubeconfigSecret(t, &cfg, server, 1))
			identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, local, cfg.Home, cfg.HomeCluster, nil)
			remote, err := remoteConfig(t.Context(), &cfg, local, identities)
			require.NoError(t, err)
			keepRotated(t.Context(), &cfg, remote, local)
			clients, err := connect.New(rest.CopyConfig(cfg.Home), remote)
			require.NoError(t, err)

			if watching {
				open, err := clients.Remote.CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				defer open.Stop()
			}
			ask := func() int64 {
				_, err := clients.Remote.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
				require.True(t, kerrors.IsNotFound(err), "%v", err)
				return <-heard
			}
			require.EqualValues(t, 1, ask())

			renewedSecret := kubeconfigSecret(t, &cfg, server, 2)
			for i := 0; ; i++ {
				renewedSecret.Annotations = map[string]string{"try": strconv.Itoa(i)} // Until Liqo's informer sees it.
				_, err := local.CoreV1().Secrets(cfg.TenantNamespace).Update(t.Context(), renewedSecret, metav1.UpdateOptions{})
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				if ask() == 2 {
					return
				}
				require.Less(t, i, 50, "requests still have the certificate of before")
			}
		})
	}
}

func kubeconfigSecret(t *testing.T, cfg *Config, server *httptest.Server, serial int64) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	text := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.TenantNamespace, Name: cfg.KubeconfigSecretName},
		Data: map[string][]byte{consts.KubeconfigSecretField: fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}]
`, server.URL, text("CERTIFICATE", server.Certificate().Raw), text("CERTIFICATE", der), text("EC PRIVATE KEY", keyDER))},
	}
}

