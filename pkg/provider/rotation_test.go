package provider

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
)

// An API server verifies the certificate of a connection at each request, and watches keep a connection in use. So a
// renewed certificate, or another address, requires new connections.
func TestAChangedKubeconfigEndsTheVirtualKubelet(t *testing.T) {
	const used = `https://192.0.2.1:6443", x: "`
	for name, tc := range map[string]struct {
		// early is in the Secret before it is watched, late after that. With deleted, the Secret is deleted instead.
		early, late string
		deleted     bool
		ends        bool
	}{
		"another identity":              {early: used, late: used + "renewed", ends: true},
		"another address":               {early: used, late: `https://192.0.2.2:6443", x: "`, ends: true},
		"between the read and the list": {early: used + "renewed", late: used + "renewed", ends: true},
		"nothing but metadata":          {early: used, late: used},
		"it cannot be used":             {early: used, late: "http://192.0.2.1:8080"},
		"a change that is undone":       {early: used + "renewed", late: used},
		"it is deleted":                 {early: used, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := runConfig(t, "http://home")
			identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, fake.NewClientset(),
				cfg.Home, cfg.HomeCluster, nil)
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				local := fake.NewClientset(secretOf(&cfg, tc.early))
				ended := make(chan error, 1)
				go func() {
					usable := func(secret *corev1.Secret) error {
						_, err := remoteConfig(&cfg, secret, identities)
						return err
					}
					ended <- followSecret(ctx, &cfg, local, &peering{secret: secretOf(&cfg, used), usable: usable})
				}()
				time.Sleep(secretSettles / 2)
				secrets := local.CoreV1().Secrets(cfg.TenantNamespace)
				if tc.deleted {
					require.NoError(t, secrets.Delete(ctx, cfg.KubeconfigSecretName, metav1.DeleteOptions{}))
				} else {
					late := secretOf(&cfg, tc.late)
					late.Annotations = map[string]string{"renewed": "now"}
					_, err := secrets.Update(ctx, late, metav1.UpdateOptions{})
					require.NoError(t, err)
				}
				time.Sleep(3 * secretSettles)
				if tc.ends {
					require.ErrorContains(t, <-ended, "the remote kubeconfig, Secret liqo-tenant-p1/kubeconfig, has changed")
					return
				}
				require.Empty(t, ended)
				stop()
				require.NoError(t, <-ended)
			})
		})
	}
}
