package claims

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// A StatefulSet makes the claim of an ephemeral volume again right after its pod was deleted.
func TestAClaimSucceedsAnotherOfItsName(t *testing.T) {
	forge.Init("broker", "broker-tenant", "broker", "10.0.0.1")
	of := func(uid string) *corev1.PersistentVolumeClaim {
		c := remoteClaim(uid)
		c.Annotations[v1alpha1.ClaimOriginAnnotation] = uid
		return c
	}
	ending := func(uid string) *corev1.PersistentVolumeClaim {
		c := of(uid)
		c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		return c
	}
	ofLiqo := remoteClaim("")
	for name, tc := range map[string]struct {
		there, cached *corev1.PersistentVolumeClaim
		fails         string
		gone          bool
	}{
		"none":                         {},
		"its own":                      {there: of("2"), cached: of("2")},
		"of Liqo, which writes no UID": {there: ofLiqo, cached: ofLiqo},
		"an earlier one":               {there: of("1"), cached: of("1"), fails: "an earlier claim data is being deleted", gone: true},
		"one that ends": {
			there: ending("1"), cached: ending("1"),
			fails: "an earlier claim data is being deleted", gone: true,
		},
		"one that ends, not in the cache": {there: ending("1"), fails: "an earlier claim data is being deleted"},
		"of a volume of the broker's Node": {
			there: of("pvc-1/then"), cached: of("pvc-1/then"), fails: "belongs to a volume of the broker's Node",
		},
		"its own ends": {there: ending("2"), cached: ending("2"), fails: "an earlier claim data is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := func(c *corev1.PersistentVolumeClaim) (all []runtime.Object) {
				if c != nil {
					all = append(all, c)
				}
				return all
			}
			there := fake.NewClientset(objects(tc.there)...)
			local := informers.NewSharedInformerFactory(fake.NewClientset(localClaim("2")), 0)
			remote := informers.NewSharedInformerFactory(fake.NewClientset(objects(tc.cached)...), 0)
			var client kubernetes.Interface
			Successive(func(opts *options.NamespacedOpts) manager.NamespacedReflector {
				client = opts.RemoteClient
				return nil
			})(&options.NamespacedOpts{
				LocalNamespace: "ns", RemoteNamespace: "ns-there", RemoteClient: there, LocalFactory: local, RemoteFactory: remote,
			})
			for _, f := range []informers.SharedInformerFactory{local, remote} {
				f.Start(t.Context().Done())
				f.WaitForCacheSync(t.Context().Done())
			}
			claim := v1apply.PersistentVolumeClaim("data", "ns-there").WithLabels(forge.ReflectionLabels())
			made, err := client.CoreV1().PersistentVolumeClaims("ns-there").Apply(t.Context(), claim, forge.ApplyOptions())
			if tc.fails == "" {
				require.NoError(t, err)
				require.Equal(t, "2", made.Annotations[v1alpha1.ClaimOriginAnnotation])
				return
			}
			require.ErrorContains(t, err, tc.fails)
			list, err := there.CoreV1().PersistentVolumeClaims("ns-there").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.gone, len(list.Items) == 0) // The fake ignores finalizers.
		})
	}
}

// Liqo's reflector deletes claims that it does not know.
func TestLiqoDeletesNoClaimsOfTheBrokersNode(t *testing.T) {
	forge.Init("broker", "broker-tenant", "broker", "10.0.0.1")
	for origin, gone := range map[string]bool{"pvc-1/then": false, "1": true, "": true} {
		claim := remoteClaim("")
		claim.Annotations[v1alpha1.ClaimOriginAnnotation] = origin
		there := fake.NewClientset(claim)
		remote := informers.NewSharedInformerFactory(there, 0)
		var client kubernetes.Interface
		Successive(func(opts *options.NamespacedOpts) manager.NamespacedReflector {
			client = opts.RemoteClient
			return nil
		})(&options.NamespacedOpts{
			LocalNamespace: "ns", RemoteNamespace: "ns-there", RemoteClient: there, RemoteFactory: remote,
			LocalFactory: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
		})
		remote.Start(t.Context().Done())
		remote.WaitForCacheSync(t.Context().Done())
		require.NoError(t, client.CoreV1().PersistentVolumeClaims("ns-there").Delete(t.Context(), "data", metav1.DeleteOptions{}))
		list, err := there.CoreV1().PersistentVolumeClaims("ns-there").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, gone, len(list.Items) == 0, origin)
	}
}
