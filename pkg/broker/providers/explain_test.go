package providers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
	"github.com/capacitorset/liqo-broker-vk/pkg/view/state"
)

// drawFederation draws the objects of up to three providers: slices that are being deleted, that serve another node, whose
// names are not unique, namespaces that are mapped or not, and what administrators have set.
func drawFederation(t *rapid.T) []client.Object {
	var objects []client.Object
	for _, id := range []string{"p1", "p2", "p3"}[:rapid.IntRange(1, 3).Draw(t, "providers")] {
		tenant := "liqo-tenant-" + id
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{
				consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true",
			}}},
			&v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.ProviderClusterSpec{
				Cordoned: rapid.IntRange(0, 4).Draw(t, "cordoned") == 0, Drain: rapid.IntRange(0, 4).Draw(t, "drain") == 0,
				Attributes: map[string]string{"price": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "price")},
			}},
			&offloadingv1beta1.NamespaceMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: id, Labels: map[string]string{consts.RemoteClusterID: id}},
				Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
					"ns": {RemoteNamespace: "ns-broker", Phase: rapid.SampledFrom([]offloadingv1beta1.MappingPhase{
						offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingTerminating,
					}).Draw(t, "mapping")},
				}},
			},
			&liqov1beta1.ForeignCluster{
				ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
			})
		for n := range rapid.IntRange(1, 2).Draw(t, "slices") {
			vn := started(rapid.SampledFrom([]string{"--broker-node=pool", "--broker-node=pool", "--broker-node=other"}).Draw(t, "serves"))
			vn.Namespace, vn.Name = fmt.Sprint(tenant, "-", n), fmt.Sprint(id, "-", n+1)
			if rapid.IntRange(0, 4).Draw(t, "shared") == 0 {
				vn.Name = "shared"
			}
			if rapid.IntRange(0, 4).Draw(t, "terminating") == 0 {
				vn.DeletionTimestamp, vn.Finalizers = &metav1.Time{Time: noon}, []string{"test/keep"}
			}
			vn.Spec.ClusterID, vn.Spec.Labels = liqov1beta1.ClusterID(id), map[string]string{"zone": fmt.Sprint(n)}
			vn.Spec.ResourceQuota.Hard = corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(rapid.SampledFrom([]string{"2", "4500m", "0"}).Draw(t, "cpu")),
				corev1.ResourceMemory: resource.MustParse("8Gi"),
			}
			objects = append(objects, vn)
		}
	}
	return objects
}

// An explanation from the API has the same decision as the broker, for every federation: with slices that are being
// deleted, of other nodes, of names that are not unique, with providers that are unreachable, cordoned or drained.
func TestExplanationsDecideAsTheBroker(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		objects := drawFederation(t)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.ProviderCluster{}).Build()
		known := belief.New(belief.Config{Clock: clock.RealClock{}, SuspicionWindow: time.Minute, ProbeInterval: time.Second})
		controller := New(Config{
			Log: logr.Discard(), Clock: clock.RealClock{}, Client: c, Belief: known, Connections: remote.NewConnections(nil, nil, ""),
			Queue: &requeue.Queue{}, Changed: func(context.Context, string) {}, Restore: func(context.Context) error { return nil }, NodeName: "pool", Selector: labels.Everything(),
		})
		reconcile := func() {
			for _, o := range objects {
				if pc, ok := o.(*v1alpha1.ProviderCluster); ok {
					_, err := controller.reconcile(t.Context(), pc.Name)
					require.NoError(t, err)
				}
			}
		}
		reconcile()
		for _, id := range known.Providers() {
			p, _ := known.Provider(id)
			live := map[string]bool{}
			for virtualNode := range p.Assigned {
				live[virtualNode] = rapid.IntRange(0, 4).Draw(t, "lease") > 0
			}
			answered := rapid.IntRange(0, 4).Draw(t, "answered") > 0
			for range 2 {
				known.ObserveProbe(id, belief.Probe{
					Began: noon, Ended: noon, Answered: answered, Took: 4 * time.Millisecond, Problem: "no answer", Kubelets: live,
				})
			}
		}
		reconcile()

		pod := scheduler.Pod{UID: "uid", Namespace: "ns", Name: "pod", Requests: resources.Amounts{
			corev1.ResourceCPU: rapid.SampledFrom([]int64{1000, 3000}).Draw(t, "requests"), corev1.ResourcePods: 1,
		}}
		explained := pod
		shown, err := state.Read(t.Context(), c, "pool")
		require.NoError(t, err)
		explanation, _ := shown.Decide(time.Now(), &explained, nil)
		var decision scheduler.Decision
		known.Decide(&pod, nil, &decision)
		require.Equal(t, decision.Message(), explanation.Message())
		require.Len(t, explanation.Verdicts, len(decision.Verdicts))
		for i := range decision.Verdicts {
			want, got := &decision.Verdicts[i], &explanation.Verdicts[i]
			require.Equal(t, want.Provider, got.Provider)
			require.Equal(t, want.Reason(), got.Reason(), want.Provider)
			require.Equal(t, want.Total, got.Total, want.Provider)
			require.Equal(t, want.VirtualNode, got.VirtualNode, want.Provider)
		}
	})
}
