package providers

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// named is a VirtualNode of a provider, with the Secret of its kubeconfig. The API server of the provider is at its id.
func named(provider, name string) (*offloadingv1beta1.VirtualNode, *corev1.Secret) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: "kubeconfig", ResourceVersion: provider},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://` + provider + `:1"}}]
`)},
	}
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: name},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID: liqov1beta1.ClusterID(provider), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: secret.Name},
		},
	}, secret
}

// Each of two providers has a VirtualNode of one name, whichever the broker sees first. Both show why it gets no pods,
// and each keeps its own connection, also when the other one is deleted.
func TestTwoProvidersHaveVirtualNodesOfOneName(t *testing.T) {
	for name, order := range map[string][]string{"p first": {"p", "z"}, "z first": {"z", "p"}} {
		t.Run(name, func(t *testing.T) {
			scheme, err := apischeme.New()
			require.NoError(t, err)
			ofP, secretOfP := named("p", "one")
			ofZ, secretOfZ := named("z", "one")
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ofP, ofZ, peeringtest.Tenant("p"), peeringtest.Tenant("z")).
				WithStatusSubresource(&v1alpha1.ProviderCluster{}).Build()
			home := kubefake.NewClientset(secretOfP, secretOfZ)
			known := state.New(state.Config{Clock: clock.RealClock{}, ProbeInterval: time.Second})
			controller := New(Config{
				Log: testr.New(t), Clock: clock.RealClock{}, Client: c, Selector: labels.Everything(), Queue: &requeue.Queue{},
				State: known, Cleaner: termination.NewCleaner(termination.CleanerConfig{State: known}),
				Connections: remote.NewConnections(
					home, identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil), "",
				),
				Restore: func(context.Context) error { return nil }, Changed: func(context.Context, string) {},
			})
			reconcile := func() {
				for _, id := range order {
					_, err := controller.reconcile(t.Context(), id)
					require.NoError(t, err)
				}
			}
			reasons := func(id string) (all []string) {
				var pc v1alpha1.ProviderCluster
				require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: id}, &pc))
				for _, vn := range pc.Status.VirtualNodes {
					all = append(all, vn.Reason)
				}
				return all
			}
			reconcile()
			reconcile()
			for id, vn := range map[string]*offloadingv1beta1.VirtualNode{"p": ofP, "z": ofZ} {
				require.Equal(t, []string{"VirtualNode name not unique"}, reasons(id))
				require.Equal(t, "https://"+id+":1", controller.connectionOf(vn).Config.Host)
			}

			require.NoError(t, c.Delete(t.Context(), ofZ))
			reconcile()
			require.Equal(t, "https://p:1", controller.connectionOf(ofP).Config.Host)
			_, has := controller.State.Provider("p")
			require.True(t, has)
		})
	}
}

func (c *Controller) connectionOf(vn *offloadingv1beta1.VirtualNode) *remote.Connection {
	return c.Connections.Get(remote.PlaceOf(vn))
}
