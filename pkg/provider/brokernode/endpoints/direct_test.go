package endpoints

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	shadowendpointslicectrl "github.com/liqotech/liqo/pkg/liqo-controller-manager/offloading/shadowendpointslice-controller"
	"github.com/liqotech/liqo/pkg/utils/directconnection"
)

// rootedAt returns a pod that is known to run at an address of a cluster.
func rootedAt(name, provider, cluster, address string) *corev1.Pod {
	pod := podAt(name, provider)
	pod.Annotations = map[string]string{"brokering.liqo.io/root-cid": cluster, "brokering.liqo.io/root-ip": address}
	return pod
}

func TestDirectConnections(t *testing.T) {
	relayed := []string{"10.70.0.2", "10.0.0.7", "10.70.0.8", "10.70.0.9"}
	relayedThere := []string{"10.81.0.2", "10.80.0.7", "10.81.0.8", "10.81.0.9"}
	direct := map[string]string{consts.UseDirectConnectionAnnotationKey: "true"}
	for name, tc := range map[string]struct {
		atP2      *corev1.Pod
		addresses []string
		data      string
		provider  []string
		atP1      *corev1.Pod
	}{
		"a provider gets the own address of a pod at another one": {
			rootedAt("at-p2", "p2", "p2", "10.244.2.2"),
			[]string{"10.244.2.2", "10.0.0.7", "10.70.0.8", "10.70.0.9"},
			`{"clusterAddresses": {"p2": ["10.244.2.2"]}}`,
			[]string{"10.82.2.2", "10.80.0.7", "10.81.0.8", "10.81.0.9"},
			nil,
		},
		"a pod of the provider itself has the same address": {
			rootedAt("at-p2", "p2", "p2", "10.244.2.2"),
			[]string{"10.244.2.2", "10.0.0.7", "10.70.0.8", "10.70.0.9"},
			`{"clusterAddresses": {"p2": ["10.244.2.2"]}}`,
			[]string{"10.82.2.2", "10.80.0.7", "10.81.0.8", "10.81.0.9"},
			rootedAt("at-p1", "p1", "p1", "10.244.2.2"),
		},
		"where a pod runs is not announced": {
			podAt("at-p2", "p2"), relayed, "", relayedThere, nil,
		},
		"what is announced is from before a move": {
			rootedAt("at-p2", "p2", "p3", "10.244.2.2"), relayed, "", relayedThere, nil,
		},
		"a pod here has the same address": {
			rootedAt("at-p2", "p2", "p2", "10.0.0.7"), relayed, "", relayedThere, nil,
		},
		"a pod at a third provider has the same address": {
			rootedAt("at-p2", "p2", "p2", "10.244.4.4"),
			[]string{"10.70.0.2", "10.70.0.4", "10.0.0.7", "10.70.0.8", "10.70.0.9"},
			"",
			[]string{"10.81.0.2", "10.81.0.4", "10.80.0.7", "10.81.0.8", "10.81.0.9"},
			nil,
		},
		"an address of the external range is the same": {
			rootedAt("at-p2", "p2", "p2", "10.70.0.9"), relayed, "", relayedThere, nil,
		},
		"another family": {
			rootedAt("at-p2", "p2", "p2", "fd00::2"), relayed, "", relayedThere, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			local := newCrowd(direct)
			_, err := local.CoreV1().Pods("ns").Update(t.Context(), tc.atP2, metav1.UpdateOptions{})
			require.NoError(t, err)
			if tc.atP1 != nil {
				_, err := local.CoreV1().Pods("ns").Update(t.Context(), tc.atP1, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			if slices.Contains(tc.addresses, "10.70.0.4") {
				pod := rootedAt("unknown", "p4", "p4", "10.244.4.4")
				_, err := local.CoreV1().Pods("ns").Create(t.Context(), pod, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			n := startNamespace(t, local, "10.0.0.7/32", mapping("at-p2", "10.0.0.2", "10.70.0.2"),
				mapping("unknown", "10.0.0.4", "10.70.0.4"), mapping("external", "10.0.0.8", "10.70.0.8"),
				mapping("stock", "10.0.0.9", "10.70.0.9"))
			shadow := n.reflected("web-1")
			require.Equal(t, tc.addresses, addresses(shadow))
			data := shadow.Annotations[consts.DirectConnectionDataAnnotationKey]
			if tc.data == "" {
				require.Empty(t, data)
			} else {
				require.JSONEq(t, tc.data, data)
			}
			require.Equal(t, tc.provider, mappedAtProvider(t, shadow))
		})
	}
}

// mappedAtProvider returns the addresses that Liqo maps at the provider. The provider has networks with this cluster
// and with p2.
func mappedAtProvider(t *testing.T, shadow *offloadingv1beta1.ShadowEndpointSlice) []string {
	t.Helper()
	network := func(cluster, pods, remappedPods, remappedExternal string) *networkingv1beta1.Configuration {
		cidr := func(pod, external string) networkingv1beta1.ClusterConfig {
			return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
				Pod:      []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pod)},
				External: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)},
			}}
		}
		return &networkingv1beta1.Configuration{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-" + cluster, Name: cluster, Labels: map[string]string{consts.RemoteClusterID: cluster},
			},
			Spec: networkingv1beta1.ConfigurationSpec{Remote: cidr(pods, "10.70.0.0/16")},
			Status: networkingv1beta1.ConfigurationStatus{
				Remote: ptr.To(cidr(remappedPods, remappedExternal)),
				Conditions: []metav1.Condition{{
					Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue,
				}},
			},
		}
	}
	kinds := runtime.NewScheme()
	require.NoError(t, networkingv1beta1.AddToScheme(kinds))
	provider := fakeclient.NewClientBuilder().WithScheme(kinds).WithObjects(
		network("home", "10.0.0.0/16", "10.80.0.0/16", "10.81.0.0/16"), network("p2", "10.244.0.0/16", "10.82.0.0/16", "10.83.0.0/16"),
	).Build()
	var data directconnection.ClusterAddresses
	if text, ok := shadow.Annotations[consts.DirectConnectionDataAnnotationKey]; ok {
		require.NoError(t, data.FromJSON([]byte(text)))
	}
	there := shadow.DeepCopy()
	require.NoError(t, shadowendpointslicectrl.MapEndpointsWithConfiguration(t.Context(), provider, "home",
		there.Spec.Template.Endpoints, data.BuildIndex()))
	return addresses(there)
}
