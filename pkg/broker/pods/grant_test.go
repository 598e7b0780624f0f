package pods

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/grants"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// tenantOf is the tenant namespace of consumer c1, with a ResourceSlice a, b, … for each amount of CPU that it was
// granted.
func tenantOf(granted ...string) []client.Object {
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-c1", Labels: map[string]string{
		"liqo.io/remote-cluster-id": "c1", "liqo.io/tenant-namespace": "true",
	}}}}
	for i, cpu := range granted {
		objects = append(objects, &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-c1", Name: string(rune('a' + i)), Labels: map[string]string{"liqo.io/replicated": "true"},
			},
			Spec: authv1beta1.ResourceSliceSpec{ConsumerClusterID: ptr.To[liqov1beta1.ClusterID]("c1")},
			Status: authv1beta1.ResourceSliceStatus{
				Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
				Conditions: []authv1beta1.ResourceSliceCondition{{
					Type: authv1beta1.ResourceSliceConditionTypeResources, Status: authv1beta1.ResourceSliceConditionAccepted,
				}},
			},
		})
	}
	return objects
}

// newPodOf is a pod that Liqo made of a ShadowPod of the user of a slice; "" is not known.
func newPodOf(slice, name, cpu string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowPod", Name: name,
				UID: types.UID("shadow-" + name), Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{Containers: cpus(cpu)},
	}
	if slice != "" {
		pod.Labels["liqo.io/creator-user"] = placement.AccountOfSlice(&authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: slice},
			Spec:       authv1beta1.ResourceSliceSpec{ConsumerClusterID: ptr.To[liqov1beta1.ClusterID]("c1")},
		}).Creator
	}
	return pod
}

func shadowOf(pod *corev1.Pod, uid types.UID) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: uid}}
}

// newBounded is newController of a broker that reads the grants of consumers.
func newBounded(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Controller {
	t.Helper()
	c := newController(t, true, funcs, nil, objects...)
	c.Grants = grants.New(c.Client, c.State, c.Requeue, &requeue.Consumers{})
	return c
}

// assigned reconciles a pod, and returns where it is assigned.
func (c *Controller) assigned(t *testing.T, name string) string {
	t.Helper()
	pod, _ := c.reconciled(t, name)
	return pod.Labels[v1alpha1.VirtualNodeLabel]
}

func (c *Controller) deleted(t *testing.T, of *corev1.Pod) {
	t.Helper()
	require.NoError(t, c.Client.Delete(t.Context(), of))
	_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(of)})
	require.NoError(t, err)
}

// granted has the grants of consumer c1 read again.
func (c *Controller) granted(t *testing.T) {
	t.Helper()
	_, err := c.Grants.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "c1"}})
	require.NoError(t, err)
}

// woken are the names of the waiting pods that are tried now.
func (c *Controller) woken() (names []string) {
	all, _ := c.State.Wake(false)
	for _, name := range all {
		names = append(names, name.Name)
	}
	return names
}

// However many pods Liqo's quota has admitted, a consumer runs no more than this cluster granted it.
func TestNewPodsOfAConsumerAreBoundedByItsGrant(t *testing.T) {
	one, two, moving := newPodOf("a", "one", "700m"), newPodOf("a", "two", "500m"), newPodOf("a", "moving", "500m")
	moving.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: noon.Format("2006-01-02T15:04:05Z07:00")}
	administrators := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "administrators", UID: "x"},
		Spec:       corev1.PodSpec{Containers: cpus("100m")},
	}
	c := newBounded(t, interceptor.Funcs{},
		append(tenantOf("1500m", "200m"), one, two, moving, administrators, newPodOf("b", "three", "200m"))...)
	c.leadsSince(t, noon)
	require.Equal(t, "q1", c.assigned(t, "one"))
	require.Empty(t, c.assigned(t, "two"), "the provider has room, the consumer has not: a pod that moves counts from the start")
	why := c.reported(t, "two")
	require.Equal(t, "BeyondGrant", why.Reason)
	require.Regexp(t, "^exceeds the remaining grant of user a-[0-9a-f]+ of consumer c1: cpu: 500m requested, 1500m granted$", why.Message)
	require.Equal(t, "q1", c.assigned(t, "three"), "another slice has its own grant")
	require.Equal(t, "q1", c.assigned(t, "administrators"), "Liqo did not make it of a ShadowPod")

	require.Equal(t, "q1", c.assigned(t, "moving"), "what has run may run elsewhere, whatever the grant is now")
	c.deleted(t, one)
	require.Equal(t, []string{"two"}, c.woken())
	require.Equal(t, "q1", c.assigned(t, "two"))
}

func TestAConsumerHasAllOfItsGrant(t *testing.T) {
	for name, granted := range map[string][]string{"in one slice": {"2"}, "in several slices": {"1500m", "300m", "200m"}} {
		t.Run(name, func(t *testing.T) {
			c := newBounded(t, interceptor.Funcs{}, tenantOf(granted...)...)
			for i, cpu := range granted {
				slice := string(rune('a' + i))
				require.NoError(t, c.Client.Create(t.Context(), newPodOf(slice, "all-of-"+slice, cpu)))
				require.Equal(t, "q1", c.assigned(t, "all-of-"+slice))
			}
		})
	}
	t.Run("if Liqo enforces no quotas", func(t *testing.T) {
		c := newBounded(t, interceptor.Funcs{}, append(tenantOf("500m", "500m"), newPodOf("", "one", "1"), newPodOf("", "two", "1m"))...)
		require.Equal(t, "q1", c.assigned(t, "one"))
		require.Empty(t, c.assigned(t, "two"))
	})
}

// A consumer deletes its ResourceSlice. No leader assigns new pods until there is one again.
func TestAPodBeyondTheGrantWaitsUntilThereIsOne(t *testing.T) {
	granted := tenantOf("1")
	c := newBounded(t, interceptor.Funcs{}, append(granted, newPodOf("a", "one", "1"), newPodOf("a", "two", "500m"))...)
	require.Equal(t, "q1", c.assigned(t, "one"))
	require.NoError(t, c.Client.Delete(t.Context(), granted[1]))
	c.granted(t)
	require.Empty(t, c.assigned(t, "two"))

	next := newControllerOf(t, c.Client, true, nil)
	next.Grants = grants.New(next.Client, next.State, next.Requeue, &requeue.Consumers{})
	require.Empty(t, next.assigned(t, "two"))
	require.Contains(t, next.reported(t, "two").Message, "500m requested, 0 granted")
	require.Empty(t, next.woken())
	require.NoError(t, next.Client.Create(t.Context(), tenantOf("1500m")[1]))
	next.granted(t)
	require.Equal(t, []string{"two"}, next.woken())
	require.Equal(t, "q1", next.assigned(t, "two"))
	require.NoError(t, next.Client.Create(t.Context(), newPodOf("a", "three", "1m")))
	require.Empty(t, next.assigned(t, "three"), "what the leader before assigned counts")
}

// Liqo makes another pod of a ShadowPod when a provider has evicted its pod. A ShadowPod that its consumer deletes
// leaves nothing.
func TestTheGrantOfAPodIsKeptWhileItsShadowPodIsThere(t *testing.T) {
	deleting := shadowOf(newPodOf("a", "one", "1"), "shadow-one")
	deleting.DeletionTimestamp, deleting.Finalizers = &metav1.Time{Time: noon}, []string{"example.org/f"}
	for name, tc := range map[string]struct {
		shadow *offloadingv1beta1.ShadowPod
		kept   bool
	}{
		"it is there":                     {shadowOf(newPodOf("a", "one", "1"), "shadow-one"), true},
		"it is gone":                      {nil, false},
		"it is being deleted":             {deleting, false},
		"another ShadowPod has this name": {shadowOf(newPodOf("a", "one", "1"), "another"), false},
	} {
		t.Run(name, func(t *testing.T) {
			one := newPodOf("a", "one", "1")
			objects := append(tenantOf("1"), one, newPodOf("a", "other", "1"))
			if tc.shadow != nil {
				objects = append(objects, tc.shadow)
			}
			c := newBounded(t, interceptor.Funcs{}, objects...)
			require.Equal(t, "q1", c.assigned(t, "one"))
			assigned := c.current(t, "one")
			c.State.ObserveAssigned(assigned, placement.AssignedTo(assigned))
			c.deleted(t, one)
			if !tc.kept {
				require.Equal(t, "q1", c.assigned(t, "other"))
				return
			}
			require.Empty(t, c.assigned(t, "other"))
			c.State.ForgetEarlier(client.ObjectKeyFromObject(one))
			next := newPodOf("a", "one", "1")
			next.UID = "next"
			require.NoError(t, c.Client.Create(t.Context(), next))
			require.Equal(t, "q1", c.assigned(t, "one"))
		})
	}
}

// A failed read proves nothing: the kept part stays, and the read is retried.
func TestTheGrantOfAPodIsKeptIfItsShadowPodCannotBeRead(t *testing.T) {
	one, failed := newPodOf("a", "one", "1"), false
	c := newBounded(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, shadow := o.(*metav1.PartialObjectMetadata); shadow && !failed {
				failed = true
				return errors.New("no answer")
			}
			return c.Get(ctx, key, o, options...)
		},
	}, append(tenantOf("1"), one, newPodOf("a", "other", "1"))...)
	require.Equal(t, "q1", c.assigned(t, "one"))
	require.NoError(t, c.Client.Delete(t.Context(), one))
	reconcile := func() error {
		_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(one)})
		return err
	}
	require.ErrorContains(t, reconcile(), "no answer")
	require.Equal(t, types.UID("shadow-one"), c.State.KeptForSuccessor(client.ObjectKeyFromObject(one)))
	require.Empty(t, c.assigned(t, "other"))
	require.NoError(t, reconcile(), "the ShadowPod is gone")
	require.Equal(t, []string{"other"}, c.woken())
	require.Equal(t, "q1", c.assigned(t, "other"))
}
