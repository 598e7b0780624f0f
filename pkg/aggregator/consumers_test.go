package aggregator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// younger makes a slice younger.
func younger(s *authv1beta1.ResourceSlice) {
	s.CreationTimestamp.Time = s.CreationTimestamp.Add(time.Minute)
}

func tenantC2() *authv1beta1.Tenant {
	t := tenant("Active")
	t.Name, t.Namespace, t.Spec.ClusterID = "c2", "liqo-tenant-c2", "c2"
	return t
}

func shared(consumer string, weight int32, guaranteed string) *v1alpha1.ConsumerCluster {
	of := limit(consumer, "100")
	of.Spec = v1alpha1.ConsumerClusterSpec{Weight: ptr.To(weight)}
	if guaranteed != "" {
		of.Spec.Guaranteed = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(guaranteed)}
	}
	return of
}

func (w *world) cpuOfC2(t *testing.T, name string) string {
	t.Helper()
	var s authv1beta1.ResourceSlice
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-c2", Name: name}, &s))
	return s.Status.Resources.Cpu().String()
}

func (w *world) consumer(t *testing.T, name string) *v1alpha1.ConsumerClusterStatus {
	t.Helper()
	var of v1alpha1.ConsumerCluster
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: name}, &of))
	return &of.Status
}

// A consumer had everything. Another one asks, with a guarantee.
func TestAnOwnerRecallsItsGuarantee(t *testing.T) {
	first := newSlice("first", "10")
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), tenantC2(), provider("p1", "10"), shared("c1", 1, ""), shared("c2", 3, "2"),
		first, atProvider(podOf(first, "a", "9")), podOf(first, "at-no-provider", "1"))
	var reclaimed map[scheduler.Account]resources.Amounts
	w.cfg.Reclaim = func(now map[scheduler.Account]resources.Amounts) { reclaimed = now }
	require.Equal(t, w.cfg.Interval, w.pass(t).RequeueAfter, "no event says that its pods have gone")
	require.Equal(t, "10", w.read(t, "first").Status.Resources.Cpu().String())
	require.Empty(t, reclaimed)
	status := w.consumer(t, "c2")
	require.Equal(t, "2", status.Guaranteed.Cpu().String())
	require.Equal(t, "2", status.Lent.Cpu().String())
	require.Equal(t, "0.000", status.Share)
	status = w.consumer(t, "c1")
	require.Equal(t, "10", status.Granted.Cpu().String())
	require.Equal(t, "10", status.Borrowed.Cpu().String())
	require.Equal(t, "10", status.Used.Cpu().String())
	require.Equal(t, "1.000", status.Share)
	require.Equal(t, corev1.ResourceCPU, status.DominantResource)
	require.EqualValues(t, 2, status.Pods)

	// 2 for c2, and 6 of the other 8. The pod of c1 still uses 9.
	require.NoError(t, w.client.Create(t.Context(), newSlice("second", "10", ofC2, younger)))
	w.pass(t)
	require.Equal(t, "2", w.read(t, "first").Status.Resources.Cpu().String())
	require.Contains(t, resourcesOf(w.read(t, "first")).Message, "2 granted of the share 2 of consumer c1 in 10 (weight 1)")
	require.Equal(t, "1", w.cpuOfC2(t, "second"))
	require.Equal(t, map[scheduler.Account]resources.Amounts{placement.AccountOfSlice(first): {corev1.ResourceCPU: 7000}}, reclaimed)
	require.Equal(t, "7", ptr.To(w.consumer(t, "c1").Reclaimed[corev1.ResourceCPU]).String())
	require.Equal(t, "1", w.consumer(t, "c2").Lent.Cpu().String())

	// The pod leaves, and has left then.
	leaving := podOf(first, "a", "9")
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(leaving), leaving))
	delete(leaving.Labels, v1alpha1.VirtualNodeLabel)
	delete(leaving.Labels, v1alpha1.ProviderLabel)
	leaving.Annotations = map[string]string{
		v1alpha1.ReclaimedAnnotation:  "2026-01-01T01:00:00Z",
		v1alpha1.MovingFromAnnotation: "q1", v1alpha1.MovingFromProviderAnnotation: "q",
	}
	require.NoError(t, w.client.Update(t.Context(), leaving))
	w.later(t)
	require.Equal(t, "1", w.cpuOfC2(t, "second"))
	delete(leaving.Annotations, v1alpha1.MovingFromAnnotation)
	delete(leaving.Annotations, v1alpha1.MovingFromProviderAnnotation)
	require.NoError(t, w.client.Update(t.Context(), leaving))
	w.later(t)
	require.Equal(t, "8", w.cpuOfC2(t, "second"))
	require.Empty(t, reclaimed)
	require.Empty(t, w.consumer(t, "c1").Reclaimed)

	// c2 asks for less, and c1 has the rest again.
	var second authv1beta1.ResourceSlice
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-c2", Name: "second"}, &second))
	second.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("3")
	require.NoError(t, w.client.Update(t.Context(), &second))
	w.later(t)
	require.Equal(t, "3", w.cpuOfC2(t, "second"))
	w.later(t) // Until then pods of its recent grant may be on the way.
	require.Equal(t, "7", w.read(t, "first").Status.Resources.Cpu().String())
}

// atProvider is a pod that is assigned.
func atProvider(pod *corev1.Pod) *corev1.Pod {
	pod.Labels[v1alpha1.VirtualNodeLabel], pod.Labels[v1alpha1.ProviderLabel] = "q1", "q"
	return pod
}

// Pods with claims and pods that are being deleted are not asked to leave, nor are pods in grants of other classes.
func TestOnlyPodsThatCanLeaveAreReclaimed(t *testing.T) {
	first, foreign := newSlice("first", "10", withGrant("10", dayOne)), newSlice("foreign", "20", withGrant("20", dayOne))
	foreign.Spec.Class = "default"
	db := atProvider(podOf(first, "db", "4"))
	db.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	deleting := atProvider(podOf(first, "deleting", "2"))
	deleting.DeletionTimestamp, deleting.Finalizers = &metav1.Time{Time: dayOne}, []string{"example.org/f"}
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), tenantC2(), provider("p1", "10"), shared("c2", 1, "10"),
		first, foreign, db, deleting, atProvider(podOf(first, "web", "3")), atProvider(podOf(foreign, "elsewhere", "20")),
		newSlice("second", "10", ofC2, younger))
	var reclaimed map[scheduler.Account]resources.Amounts
	w.cfg.Reclaim = func(now map[scheduler.Account]resources.Amounts) { reclaimed = now }
	w.pass(t)
	require.Equal(t, map[scheduler.Account]resources.Amounts{placement.AccountOfSlice(first): {corev1.ResourceCPU: 3000}}, reclaimed)
}

// Without a weight or a guarantee the oldest slice goes first.
func TestLimitsAloneShareNothing(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), tenantC2(), provider("p1", "10"), limit("c1", "100"),
		newSlice("first", "10", withGrant("10", dayOne)), newSlice("second", "5", ofC2, younger))
	w.pass(t)
	require.Equal(t, "10", w.read(t, "first").Status.Resources.Cpu().String())
	require.Equal(t, "0", w.cpuOfC2(t, "second"))
}

// A status that cannot be written keeps no offer from being written, and is tried again.
func TestAStatusThatIsNotWrittenIsTriedAgain(t *testing.T) {
	broken := true
	w := newWorld(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption,
		) error {
			if broken {
				return errors.New("the API server is away")
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	}, tenant("Active"), provider("p1", "10"), shared("c1", 1, "20"), newSlice("first", "10"))
	require.Equal(t, afterConflict, w.pass(t).RequeueAfter)
	require.Equal(t, "10", w.read(t, "first").Status.Resources.Cpu().String())
	broken = false
	w.pass(t)
	require.Equal(t, "10", w.consumer(t, "c1").Guaranteed.Cpu().String(), "the providers grant 10 of the 20")
}
