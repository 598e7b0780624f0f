package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	authforge "github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"
)

// Liqo makes the kubeconfig from the ResourceSlice status that the provider writes.
func TestKubeconfigsLeadToAPIServersOnly(t *testing.T) {
	const inBand = "http://10.70.0.7:8118" // As liqoctl peer --in-band writes it (v1.2.0, pkg/liqoctl/authenticate/handler.go).
	for name, tc := range map[string]struct {
		apiServer, proxy string
		proxies          []string
		want             string
	}{
		"Liqo's own":           {apiServer: "https://192.0.2.1:6443"},
		"a path, as Rancher's": {apiServer: "https://rancher.example/k8s/clusters/c-1"},
		"no proxy":             {apiServer: "https://192.0.2.1:6443", proxies: []string{inBand}},
		"a proxy that may be":  {apiServer: "https://192.0.2.1:6443", proxy: inBand, proxies: []string{"http://other:1", inBand}},
		"any proxy":            {apiServer: "https://192.0.2.1:6443", proxy: inBand, proxies: []string{"*"}},
		"a proxy that may not": {
			apiServer: "https://192.0.2.1:6443", proxy: inBand, want: `proxyURL of the provider's ResourceSlice is "` + inBand + `"`,
		},
		"another proxy": {
			apiServer: "https://192.0.2.1:6443", proxy: "http://internal:80", proxies: []string{inBand}, want: "--provider-proxy-url",
		},
		"a proxy with a secret": {
			apiServer: "https://192.0.2.1:6443", proxy: "http://u:secret@internal", want: `"http://u:xxxxx@internal"`,
		},
		"plain HTTP": {
			apiServer: "http://internal:8080/prefix",
			want:      "status.authParams.apiServer of the provider's ResourceSlice is not an https URL",
		},
		"plain HTTP, any proxy":  {apiServer: "http://internal", proxy: inBand, proxies: []string{"*"}, want: "is not an https URL"},
		"a user":                 {apiServer: "https://user:word@internal", want: "contains a user name"},
		"another scheme":         {apiServer: "unix:///run/x.sock", want: "apiServer"},
		"a plain name of a host": {apiServer: "internal", want: "apiServer"},
	} {
		t.Run(name, func(t *testing.T) {
			identity := authforge.Identity("slice", "tenant")
			identity.Spec = authv1beta1.IdentitySpec{ClusterID: "p1", AuthParams: authv1beta1.AuthParams{APIServer: tc.apiServer}}
			if tc.proxy != "" {
				identity.Spec.AuthParams.ProxyURL = &tc.proxy
			}
			secret := authforge.KubeconfigSecret(identity)
			require.NoError(t, authforge.MutateKubeconfigSecret(secret, identity, nil, ptr.To("there")))
			secret.ResourceVersion = "1"
			home := fake.NewClientset(secret)
			identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil)
			c := NewConnections(home, identities, "ours/v1", tc.proxies...)
			vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p1"}}
			vn.Spec.ClusterID, vn.Spec.KubeconfigSecretRef = "p1", &corev1.LocalObjectReference{Name: secret.Name}
			c.Set(&Connection{Provider: "p1", VirtualNode: "p1"}) // With an earlier address.
			err := c.Refresh(t.Context(), vn, time.Now())
			if tc.want == "" {
				require.NoError(t, err)
				require.NotNil(t, c.Get(PlaceOf(vn)))
				require.Empty(t, c.Refused(PlaceOf(vn)))
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.Contains(t, c.Refused(PlaceOf(vn)), tc.want)
			require.Nil(t, c.Get(PlaceOf(vn)))
			c.Remove(PlaceOf(vn))
			require.Empty(t, c.Refused(PlaceOf(vn)))
		})
	}
}
