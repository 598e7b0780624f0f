package grants

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// namespaces returns the namespaces of consumer c1: its tenant namespace, two that were made for its pods, and others
// that have its label.
func namespaces() []client.Object {
	namespace := func(name, id string, tenant, made bool) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": id}}}
		if tenant {
			ns.Labels["liqo.io/tenant-namespace"] = "true"
		}
		if made {
			ns.Annotations = map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant-" + id + "/" + id}
		}
		return ns
	}
	return []client.Object{
		namespace("liqo-tenant-c1", "c1", true, false), namespace("a", "c1", false, true), namespace("b", "c1", false, true),
		namespace("liqo-tenant-c2", "c2", true, false), namespace("c", "c2", false, true), namespace("labelled", "c1", false, false),
	}
}

type change func(*authv1beta1.ResourceSlice)

// slice is one of consumer c1 that was granted a CPU and three pods, as changed.
func slice(name string, changes ...change) *authv1beta1.ResourceSlice {
	s := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-c1", Name: name, Labels: map[string]string{"liqo.io/replicated": "true"}},
		Spec:       authv1beta1.ResourceSliceSpec{ConsumerClusterID: ptr.To[liqov1beta1.ClusterID]("c1"), Class: "any"},
		Status: authv1beta1.ResourceSliceStatus{
			Conditions: []authv1beta1.ResourceSliceCondition{{
				Type: authv1beta1.ResourceSliceConditionTypeResources, Status: authv1beta1.ResourceSliceConditionAccepted,
			}},
			Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("3")},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func denied(s *authv1beta1.ResourceSlice) {
	s.Status.Conditions[0].Status = authv1beta1.ResourceSliceConditionDenied
}

func grants(list corev1.ResourceList) change {
	return func(s *authv1beta1.ResourceSlice) { s.Status.Resources = list }
}

func newController(t *testing.T, objects ...client.Object) (*Controller, client.Client) {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	known := state.New(state.Config{Clock: clock.RealClock{}})
	known.SetProvider("q", state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
	known.Schedule(scheduler.Provider{
		ID: "q", Enabled: true, Ready: true, Namespaces: sets.New("a", "b", "c"),
		Slices: []scheduler.Slice{{VirtualNode: "q1", Granted: resources.Amounts{corev1.ResourceCPU: 1 << 30, "example.org/a": 9}}},
	})
	return New(c, known, requeue.NewPods(&requeue.Queue{}, c, known, logr.Discard()), &requeue.Consumers{}), c
}

// tried decides about a new pod of the user of a slice; "" is not known.
func (c *Controller) tried(consumer, of, name string, requests resources.Amounts) string {
	account := scheduler.Account{Consumer: consumer}
	if of != "" {
		account = placement.AccountOfSlice(slice(of, func(s *authv1beta1.ResourceSlice) {
			s.Spec.ConsumerClusterID = ptr.To(liqov1beta1.ClusterID(consumer))
		}))
	}
	d := c.state.Assume(&scheduler.Pod{
		UID: types.UID(name), Namespace: "a", Name: name, Consumer: consumer,
		Owner: consumer, Account: account, First: true, Requests: requests,
	}, nil)
	return d.Beyond
}

func TestWhatAConsumerWasGranted(t *testing.T) {
	much := resources.Amounts{corev1.ResourceCPU: 1 << 20}
	for name, tc := range map[string]struct {
		slices []client.Object
		// of the user of slice one, and of all
		one, all string
	}{
		"no slice": {nil, "0", "0"},
		"one":      {[]client.Object{slice("one")}, "1", "1"},
		"two, of any class": {
			[]client.Object{slice("one"), slice("two", func(s *authv1beta1.ResourceSlice) { s.Spec.Class = "default" })}, "1", "2",
		},
		"denied ones do not count": {[]client.Object{slice("one", denied), slice("two")}, "0", "1"},
		"one that is decided later": {
			[]client.Object{slice("one", func(s *authv1beta1.ResourceSlice) { s.Status.Conditions = nil })}, "0", "0",
		},
		"an empty one": {[]client.Object{slice("one", grants(nil))}, "0", "0"},
		"of another tenant": {
			[]client.Object{slice("one", func(s *authv1beta1.ResourceSlice) { s.Namespace = "liqo-tenant-c2" })}, "0", "0",
		},
		"in one of its namespaces": {[]client.Object{slice("one", func(s *authv1beta1.ResourceSlice) { s.Namespace = "a" })}, "0", "0"},
		"that this cluster sent":   {[]client.Object{slice("one", func(s *authv1beta1.ResourceSlice) { s.Labels = nil })}, "0", "0"},
		"that names another consumer": {[]client.Object{slice("one", func(s *authv1beta1.ResourceSlice) {
			s.Spec.ConsumerClusterID = ptr.To[liqov1beta1.ClusterID]("c2")
		})}, "0", "0"},
		"that names none": {[]client.Object{slice("one", func(s *authv1beta1.ResourceSlice) { s.Spec.ConsumerClusterID = nil })}, "0", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newController(t, append(namespaces(), tc.slices...)...)
			require.NoError(t, c.Ensure(t.Context(), "c1"))
			require.Regexp(t, " "+tc.one+" granted$", c.tried("c1", "one", "pod", much))
			require.Regexp(t, " "+tc.all+" granted$", c.tried("c1", "", "unlabelled", much))
		})
	}
}

func TestAnyNumberOfPodsIsGrantedBySlicesThatDoNotNameThem(t *testing.T) {
	c, _ := newController(t, append(namespaces(), slice("one"), slice("two", grants(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), "example.org/a": resource.MustParse("2"),
	})))...)
	require.NoError(t, c.Ensure(t.Context(), "c1"))
	for _, pod := range []string{"one", "two", "three"} {
		require.Empty(t, c.tried("c1", "one", pod, resources.Amounts{corev1.ResourcePods: 1}))
	}
	require.Contains(t, c.tried("c1", "one", "four", resources.Amounts{corev1.ResourcePods: 1}), "pods: 1 requested, 3 granted")
	for _, pod := range []string{"four", "five"} {
		require.Empty(t, c.tried("c1", "two", pod, resources.Amounts{corev1.ResourcePods: 1}))
	}
	require.Empty(t, c.tried("c1", "", "rest", resources.Amounts{corev1.ResourceCPU: 1100, "example.org/a": 2, corev1.ResourcePods: 1}))
	require.Equal(t, "exceeds the remaining grants of consumer c1: memory: 1 requested, 0 granted",
		c.tried("c1", "", "memory", resources.Amounts{corev1.ResourceMemory: 1}))
}

func TestAChangedGrantIsReadAgain(t *testing.T) {
	cpu := resources.Amounts{corev1.ResourceCPU: 1000}
	c, home := newController(t, append(namespaces(), slice("one"), slice("one", func(s *authv1beta1.ResourceSlice) {
		s.Namespace, s.Spec.ConsumerClusterID = "liqo-tenant-c2", ptr.To[liqov1beta1.ClusterID]("c2")
	}))...)
	reconciled := func(id string) {
		_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: id}})
		require.NoError(t, err)
	}
	reconciled("c1")
	reconciled("c2")
	require.Empty(t, c.tried("c1", "one", "one", cpu))
	require.NotEmpty(t, c.tried("c1", "one", "two", cpu))
	require.Empty(t, c.tried("c2", "one", "three", cpu), "another consumer has its own")

	var grown authv1beta1.ResourceSlice
	require.NoError(t, home.Get(t.Context(), client.ObjectKeyFromObject(slice("one")), &grown))
	grants(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")})(&grown)
	require.NoError(t, home.Update(t.Context(), &grown))
	require.NoError(t, c.Ensure(t.Context(), "c1"))
	require.NotEmpty(t, c.tried("c1", "one", "two", cpu), "it is known, and read again when the slice changes")
	reconciled("c1")
	names, _ := c.state.Wake(false)
	require.Equal(t, []types.NamespacedName{{Namespace: "a", Name: "two"}}, names)
	require.Empty(t, c.tried("c1", "one", "two", cpu))

	require.NoError(t, home.Delete(t.Context(), &grown))
	reconciled("c1")
	require.NotEmpty(t, c.tried("c1", "one", "four", resources.Amounts{corev1.ResourcePods: 1}), "nothing new without a slice")
	for _, namespace := range namespaces() {
		require.NoError(t, home.Delete(t.Context(), namespace))
	}
	reconciled("c1")
	require.False(t, c.state.HasGrant("c1"), "nothing of the consumer is left")
}

// The queue of the pods gives consumers turns by their weights.
func TestTheQueueKnowsNamespacesAndWeights(t *testing.T) {
	namespaceOf := func(name, consumer string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": consumer},
			Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant-" + consumer + "/" + consumer},
		}}
	}
	heavy := &v1alpha1.ConsumerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: v1alpha1.ConsumerClusterSpec{Weight: ptr.To[int32](2)},
	}
	c, api := newController(t, heavy, namespaceOf("shop", "c1"), namespaceOf("bank", "c2"))
	queue := c.consumers.NewQueue("", requeue.Failures())
	defer queue.ShutDown()
	order := func() (namespaces []string) {
		for _, consumer := range []string{"c1", "c2"} {
			_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: consumer}})
			require.NoError(t, err)
		}
		for _, name := range []string{"a", "b", "c"} {
			for _, namespace := range []string{"shop", "bank"} {
				queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
			}
		}
		for range 6 {
			key, _ := queue.Get()
			queue.Done(key)
			namespaces = append(namespaces, key.Namespace)
		}
		return namespaces
	}
	require.Equal(t, []string{"shop", "shop", "bank", "shop", "bank", "bank"}, order())
	require.NoError(t, api.Delete(t.Context(), heavy))
	require.Equal(t, []string{"shop", "bank", "shop", "bank", "shop", "bank"}, order())
}
