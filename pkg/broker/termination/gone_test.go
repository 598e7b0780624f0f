package termination

import (
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A leader that begins when a VirtualNode is gone has read no kubeconfig of its provider.
func TestAProviderWithoutAVirtualNodeIsConnectedWith(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	tenant := peeringtest.Tenant("p1")
	left := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant.Name, Name: "p1", Labels: map[string]string{consts.RemoteClusterID: "p1"},
	}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "kubeconfig-resourceslice-gone"},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
`)},
	}
	home := kubefake.NewClientset(secret)
	gone := Gone{
		Log: testr.New(t), Clock: clock.RealClock{},
		Client:      fake.NewClientBuilder().WithScheme(scheme).WithObjects(tenant, left).Build(),
		Connections: remote.NewConnections(home, identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil), ""),
	}
	require.Nil(t, gone.Connect(t.Context(), scheduler.Place{VirtualNode: "gone"}), "it is not known whose it was")
	other := scheduler.Place{Provider: "p1", VirtualNode: "other"}
	require.Nil(t, gone.Connect(t.Context(), other), "it has no Secret")
	connection := gone.Connect(t.Context(), scheduler.Place{Provider: "p1", VirtualNode: "gone"})
	require.NotNil(t, connection)
	require.Equal(t, "p1", connection.Provider)
	require.Same(t, connection, gone.Connect(t.Context(), other), "with that of another VirtualNode of the provider")
	require.Nil(t, gone.Connect(t.Context(), scheduler.Place{Provider: "p2", VirtualNode: "gone"}))
}
