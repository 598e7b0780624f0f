package aggregator

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func list(cpu string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi"),
		corev1.ResourcePods: resource.MustParse("10"),
	}
}

func provider(name, cpu string, change ...func(*v1alpha1.ProviderCluster)) *v1alpha1.ProviderCluster {
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pc.Status.Resources.Granted = list(cpu)
	for _, c := range change {
		c(pc)
	}
	return pc
}

func in(region string) func(*v1alpha1.ProviderCluster) {
	return func(pc *v1alpha1.ProviderCluster) { pc.Spec.Attributes = map[string]string{"region": region} }
}

// asking is a ResourceSlice of consumer c1 as its replica looks here, with its certificate signed.
func newSlice(name, cpu string, change ...func(*authv1beta1.ResourceSlice)) *authv1beta1.ResourceSlice {
	s := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "liqo-tenant-c1", CreationTimestamp: metav1.NewTime(dayOne),
			Labels: map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "c1"},
		},
		Spec: authv1beta1.ResourceSliceSpec{
			Class: "broker", ConsumerClusterID: ptr.To(liqov1beta1.ClusterID("c1")),
			Resources: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Mi"),
				corev1.ResourcePods: resource.MustParse("1"),
			},
		},
		Status: authv1beta1.ResourceSliceStatus{
			AuthParams: &authv1beta1.AuthParams{SignedCRT: []byte("certificate")},
			Conditions: []authv1beta1.ResourceSliceCondition{{Type: "Authentication", Status: "Accepted"}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// has gives the slice a grant of cpu, made at a time.
func withGrant(cpu string, at time.Time) func(*authv1beta1.ResourceSlice) {
	return func(s *authv1beta1.ResourceSlice) {
		s.Status.Resources = s.Spec.Resources.DeepCopy()
		s.Status.Resources[corev1.ResourceCPU] = resource.MustParse(cpu)
		s.Status.Conditions = append(s.Status.Conditions, authv1beta1.ResourceSliceCondition{
			Type: "Resources", Status: "Accepted", LastTransitionTime: metav1.NewTime(at),
		})
	}
}

func tenant(condition authv1beta1.TenantCondition) *authv1beta1.Tenant {
	return &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "liqo-tenant-c1"},
		Spec:       authv1beta1.TenantSpec{ClusterID: "c1", TenantCondition: condition},
	}
}

var dayOne = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a reconciler on a fake API, with a clock of its own.
type world struct {
	*reconciler
	now      time.Time
	events   *record.FakeRecorder
	registry *prometheus.Registry
}

func newWorld(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, authv1beta1.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-c1", Labels: map[string]string{consts.RemoteClusterID: "c1"},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant-c1/c1"},
	}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ours"}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithStatusSubresource(&authv1beta1.ResourceSlice{}, &v1alpha1.ProviderCluster{}, &v1alpha1.ConsumerCluster{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	w := &world{now: dayOne.Add(time.Hour), events: record.NewFakeRecorder(100), registry: prometheus.NewPedanticRegistry()}
	w.reconciler = &reconciler{
		cfg: Config{
			Class: "broker", Providers: labels.Everything(),
			Rules:          share.Rules{Overcommit: 1, Hysteresis: 0.05},
			Interval:       30 * time.Second,
			IngressClasses: []liqov1beta1.IngressType{{IngressClassName: "nginx", Default: true}},
		},
		client: c, live: c, events: w.events, metrics: NewMetrics(w.registry), now: func() time.Time { return w.now }, former: former{},
	}
	return w
}

func (w *world) pass(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := w.Reconcile(t.Context(), ctrl.Request{})
	require.NoError(t, err)
	return result
}

func (w *world) read(t *testing.T, name string) *authv1beta1.ResourceSlice {
	t.Helper()
	var s authv1beta1.ResourceSlice
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-c1", Name: name}, &s))
	return &s
}

func resourcesOf(s *authv1beta1.ResourceSlice) authv1beta1.ResourceSliceCondition {
	for _, c := range s.Status.Conditions {
		if c.Type == "Resources" {
			return c
		}
	}
	return authv1beta1.ResourceSliceCondition{}
}

func TestSlicesAreGrantedAndDenied(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8", in("us")), provider("p2", "8", in("eu")),
		newSlice("first", "10"), newSlice("second", "7"))
	w.pass(t)

	first := w.read(t, "first")
	require.Equal(t, "10", first.Status.Resources.Cpu().String())
	require.Equal(t, authv1beta1.ResourceSliceConditionAccepted, resourcesOf(first).Status)
	require.Equal(t, map[string]string{"brokering.liqo.io/providers": "2", "brokering.liqo.io/regions": "eu_us"}, first.Status.NodeLabels)
	require.Equal(t, "nginx", first.Status.IngressClasses[0].IngressClassName)
	require.Equal(t, "certificate", string(first.Status.AuthParams.SignedCRT), "certificates are Liqo's")

	second := resourcesOf(w.read(t, "second"))
	require.Equal(t, authv1beta1.ResourceSliceConditionDenied, second.Status)
	require.Equal(t, "cpu: 7 requested, 6 left of 16", second.Message)
	require.NotEmpty(t, second.Reason)
	require.Nil(t, w.read(t, "second").Status.Resources)

	require.Contains(t, <-w.events.Events, "cpu: 7 requested, 6 left of 16", "what takes nothing more comes first")
	require.Contains(t, <-w.events.Events, "Granted 10 cpu")
	families, err := w.registry.Gather()
	require.NoError(t, err)
	shown := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := family.GetName()
			for _, label := range metric.GetLabel() {
				key += " " + label.GetValue()
			}
			shown[key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	require.InDelta(t, 1, shown["liqo_broker_offer_denials_total c1"], 0)
	require.InDelta(t, 10, shown["liqo_broker_offers c1 cpu"], 0)
	require.InDelta(t, 16, shown["liqo_broker_offers_available cpu"], 0)

	w.metrics.set(nil, nil)
	none, err := testutil.GatherAndCount(w.registry)
	require.NoError(t, err)
	require.Zero(t, none, "no slices any more")

	before := w.read(t, "first").ResourceVersion
	w.pass(t)
	require.Equal(t, before, w.read(t, "first").ResourceVersion, "nothing new is not written")
	require.Empty(t, w.events.Events)
}

func TestNothingIsOfferedWithoutTheGuard(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant(authv1beta1.TenantConditionActive), provider("p", "8"),
		newSlice("new", "2"), newSlice("grows", "4", withGrant("1", dayOne)), newSlice("shrinks", "1", withGrant("3", dayOne)))
	unknown, err := admission.New(kubefake.NewClientset(), func(context.Context) {})
	require.NoError(t, err)
	w.cfg.Guard = unknown
	granted := func(name string) string { return w.read(t, name).Status.Resources.Cpu().String() }
	require.Equal(t, admission.Recheck, w.pass(t).RequeueAfter)
	require.Equal(t, []string{"0", "1", "1"}, []string{granted("new"), granted("grows"), granted("shrinks")})
	w.cfg.Guard = nil
	w.pass(t)
	require.Equal(t, []string{"2", "4", "1"}, []string{granted("new"), granted("grows"), granted("shrinks")})
}

func TestASumThatGrowsIsOfferedInDueTime(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8"), newSlice("first", "6"), newSlice("second", "4"))
	w.pass(t)
	require.Equal(t, authv1beta1.ResourceSliceConditionDenied, resourcesOf(w.read(t, "second")).Status)

	grow := func(cpu string) {
		var pc v1alpha1.ProviderCluster
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "p1"}, &pc))
		pc.Status.Resources.Granted = list(cpu)
		require.NoError(t, w.client.Status().Update(t.Context(), &pc))
	}
	grow("10")
	w.pass(t)
	require.Equal(t, "4", w.read(t, "second").Status.Resources.Cpu().String(), "a denied one waits for nothing but room")

	grow("7")
	w.pass(t)
	require.Equal(t, "1", w.read(t, "second").Status.Resources.Cpu().String(), "what is gone is taken away at once")
	require.Equal(t, "cpu: 4 requested, 1 granted of 7", resourcesOf(w.read(t, "second")).Message)

	grow("20")
	require.Equal(t, 30*time.Second, w.pass(t).RequeueAfter)
	require.Equal(t, "1", w.read(t, "second").Status.Resources.Cpu().String(), "but not given back in the same moment")
	w.now = w.now.Add(30 * time.Second)
	w.pass(t)
	require.Equal(t, "4", w.read(t, "second").Status.Resources.Cpu().String())
}

func TestAConsumerThatAsksForMoreIsAnsweredAtOnce(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8"), newSlice("first", "2"))
	w.pass(t)
	s := w.read(t, "first")
	s.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("6")
	require.NoError(t, w.client.Update(t.Context(), s))
	w.pass(t)
	require.Equal(t, "6", w.read(t, "first").Status.Resources.Cpu().String())
}

func TestModesOfSlices(t *testing.T) {
	set := func(change func(*authv1beta1.ResourceSlice)) func(*authv1beta1.ResourceSlice) { return change }
	for name, tc := range map[string]struct {
		tenant *authv1beta1.Tenant
		slice  *authv1beta1.ResourceSlice
		// want is the CPU granted after the pass, "" for a slice that is left as it is.
		want string
	}{
		"a slice of the class": {tenant: tenant("Active"), slice: newSlice("s", "2"), want: "2"},
		"one of another class does not": {
			tenant: tenant("Active"), slice: newSlice("s", "2", set(func(s *authv1beta1.ResourceSlice) { s.Spec.Class = "default" })),
		},
		"one of this cluster's own does not": {
			tenant: tenant("Active"), slice: newSlice("s", "2", set(func(s *authv1beta1.ResourceSlice) { s.Labels = nil })),
		},
		"one without a certificate waits": {
			tenant: tenant("Active"), slice: newSlice("s", "2", set(func(s *authv1beta1.ResourceSlice) { s.Status.Conditions = nil })),
		},
		"one without a tenant does not":      {slice: newSlice("s", "2")},
		"a cordoned tenant gets nothing new": {tenant: tenant("Cordoned"), slice: newSlice("s", "2")},
		"keeps what it has":                  {tenant: tenant("Cordoned"), slice: newSlice("s", "6", withGrant("2", dayOne)), want: "2"},
		"as far as it is there":              {tenant: tenant("Cordoned"), slice: newSlice("s", "12", withGrant("12", dayOne)), want: "8"},
		"a drained one is left to Liqo":      {tenant: tenant("Drained"), slice: newSlice("s", "2", withGrant("1", dayOne))},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{provider("p1", "8"), tc.slice.DeepCopy()}
			if tc.tenant != nil {
				objects = append(objects, tc.tenant)
			}
			w := newWorld(t, interceptor.Funcs{}, objects...)
			w.pass(t)
			got := w.read(t, "s")
			if tc.want == "" {
				require.Len(t, got.Status.Conditions, len(tc.slice.Status.Conditions))
				require.True(t, got.Status.Resources.Cpu().Equal(*tc.slice.Status.Resources.Cpu()))
				return
			}
			require.Equal(t, tc.want, got.Status.Resources.Cpu().String())
		})
	}
}

func TestAConflictIsTriedAgain(t *testing.T) {
	conflicts := 1
	w := newWorld(t, interceptor.Funcs{SubResourceUpdate: func(
		ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
	) error {
		if conflicts--; conflicts >= 0 {
			return kerrors.NewConflict(schema.GroupResource{Resource: "resourceslices"}, o.GetName(), nil)
		}
		return c.SubResource(sub).Update(ctx, o, opts...)
	}}, tenant("Active"), provider("p1", "8"), newSlice("s", "2"))
	require.Equal(t, afterConflict, w.pass(t).RequeueAfter)
	w.pass(t)
	require.Equal(t, "2", w.read(t, "s").Status.Resources.Cpu().String())
}

// A slice gets only resources that another one has released.
func TestNothingGrowsWhileAnotherCannotShrink(t *testing.T) {
	conflicts := 1
	w := newWorld(t, interceptor.Funcs{SubResourceUpdate: func(
		ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
	) error {
		if o.GetName() == "shrinks" {
			if conflicts--; conflicts >= 0 {
				return kerrors.NewConflict(schema.GroupResource{Resource: "resourceslices"}, o.GetName(), nil)
			}
		}
		return c.SubResource(sub).Update(ctx, o, opts...)
	}}, tenant("Active"), provider("p1", "8"), newSlice("grows", "4"), newSlice("shrinks", "4", withGrant("8", dayOne)))
	require.Equal(t, afterConflict, w.pass(t).RequeueAfter)
	require.Nil(t, w.read(t, "grows").Status.Resources)
	w.pass(t)
	require.Equal(t, "4", w.read(t, "shrinks").Status.Resources.Cpu().String())
	require.Equal(t, "4", w.read(t, "grows").Status.Resources.Cpu().String())
}

// failing makes the status writes of these slices fail, as if the object were too large for etcd.
func failing(names ...string) interceptor.Funcs {
	return interceptor.Funcs{SubResourceUpdate: func(
		ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
	) error {
		if slices.Contains(names, o.GetName()) {
			return kerrors.NewRequestEntityTooLargeError("the object")
		}
		return c.SubResource(sub).Update(ctx, o, opts...)
	}}
}

func TestAnOfferThatCannotBeWrittenHoldsUpNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		fails *authv1beta1.ResourceSlice
		// want has the grants of an older slice that requests 4 of 8 cores, and of a younger one that requests 2.
		older, younger string
	}{
		"a denial":                             {newSlice("fails", "100"), "4", "2"},
		"a grant":                              {newSlice("fails", "1"), "4", "2"},
		"a grant that grows":                   {newSlice("fails", "2", withGrant("1", dayOne)), "4", "2"},
		"one that shrinks keeps what it has":   {newSlice("fails", "1", withGrant("3", dayOne)), "4", ""},
		"and the others get what is left":      {newSlice("fails", "1", withGrant("4", dayOne)), "4", ""},
		"if that is enough":                    {newSlice("fails", "1", withGrant("6", dayOne)), "", "2"},
		"in vain if it has more than there is": {newSlice("fails", "1", withGrant("20", dayOne)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			younger := newSlice("younger", "2", func(s *authv1beta1.ResourceSlice) { s.CreationTimestamp.Time = dayOne.Add(time.Hour) })
			w := newWorld(t, failing("fails"), tenant("Active"), provider("p1", "8"), tc.fails, newSlice("older", "4"), younger)
			_, err := w.Reconcile(t.Context(), ctrl.Request{})
			require.ErrorContains(t, err, "status of ResourceSlice liqo-tenant-c1/fails")
			for name, want := range map[string]string{"older": tc.older, "younger": tc.younger} {
				got := w.read(t, name).Status.Resources
				if want == "" {
					require.Nil(t, got, name)
					continue
				}
				require.Equal(t, want, got.Cpu().String(), name)
			}
		})
	}
}

// A slice that keeps too much of one resource does not block others in the rest: neither slices that grow nor slices
// that leave that resource to the broker.
func TestOthersGrowByFreeResources(t *testing.T) {
	memory := func(requested, granted string) func(*authv1beta1.ResourceSlice) {
		return func(s *authv1beta1.ResourceSlice) {
			s.Spec.Resources[corev1.ResourceMemory] = resource.MustParse(requested)
			s.Status.Resources[corev1.ResourceMemory] = resource.MustParse(granted)
		}
	}
	leaves := func(name corev1.ResourceName) func(*authv1beta1.ResourceSlice) {
		return func(s *authv1beta1.ResourceSlice) { delete(s.Spec.Resources, name) }
	}
	for name, tc := range map[string]struct {
		other       *authv1beta1.ResourceSlice
		cpu, memory string
	}{
		"one that grows":                {newSlice("other", "6", withGrant("2", dayOne), memory("768Mi", "256Mi")), "6", "512Mi"},
		"one that leaves it to us":      {newSlice("other", "6", leaves(corev1.ResourceMemory)), "6", "512Mi"},
		"one that grows by nothing yet": {newSlice("other", "2", withGrant("2", dayOne), memory("768Mi", "512Mi")), "2", "512Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			fails := newSlice("fails", "2", withGrant("2", dayOne), memory("256Mi", "512Mi"))
			w := newWorld(t, failing("fails"), tenant("Active"), provider("p1", "8"), fails, tc.other)
			for range 2 {
				_, err := w.Reconcile(t.Context(), ctrl.Request{})
				require.ErrorContains(t, err, "status of ResourceSlice liqo-tenant-c1/fails")
				got := w.read(t, "other").Status.Resources
				require.Equal(t, []string{tc.cpu, tc.memory}, []string{got.Cpu().String(), got.Memory().String()})
			}
		})
	}
}

// Two slices that each request the resources that the other releases get them in one pass, and nothing is granted twice
// meanwhile.
func TestWhatIsExchangedIsGivenBackFirst(t *testing.T) {
	memory := func(requested, granted string) func(*authv1beta1.ResourceSlice) {
		return func(s *authv1beta1.ResourceSlice) {
			s.Spec.Resources[corev1.ResourceMemory] = resource.MustParse(requested)
			s.Status.Resources[corev1.ResourceMemory] = resource.MustParse(granted)
		}
	}
	var w *world
	check := interceptor.Funcs{SubResourceUpdate: func(
		ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
	) error {
		require.NoError(t, c.SubResource(sub).Update(ctx, o, opts...))
		one, other := w.read(t, "one").Status.Resources, w.read(t, "other").Status.Resources
		sum := resources.RoundDown(one)
		sum.Add(resources.RoundDown(other))
		whole := resources.Amounts{corev1.ResourceCPU: 8000, corev1.ResourceMemory: 1 << 30, corev1.ResourcePods: 10}
		require.True(t, whole.Covers(sum), "%v", sum)
		return nil
	}}
	w = newWorld(t, check, tenant("Active"), provider("p1", "8"),
		newSlice("one", "2", withGrant("6", dayOne), memory("768Mi", "256Mi")),
		newSlice("other", "6", withGrant("2", dayOne), memory("256Mi", "768Mi")))
	w.pass(t)
	one, other := w.read(t, "one").Status.Resources, w.read(t, "other").Status.Resources
	require.Equal(t, []string{"2", "768Mi"}, []string{one.Cpu().String(), one.Memory().String()})
	require.Equal(t, []string{"6", "256Mi"}, []string{other.Cpu().String(), other.Memory().String()})
}

// An offer that could not be written does not count as decided in the next reconciliation.
func TestAWishIsNotForgottenWhenItsAnswerIsLost(t *testing.T) {
	conflicts := 0
	w := newWorld(t, interceptor.Funcs{SubResourceUpdate: func(
		ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
	) error {
		if conflicts--; conflicts >= 0 {
			return kerrors.NewConflict(schema.GroupResource{Resource: "resourceslices"}, o.GetName(), nil)
		}
		return c.SubResource(sub).Update(ctx, o, opts...)
	}}, tenant("Active"), provider("p1", "8"), newSlice("first", "2"))
	w.pass(t)
	s := w.read(t, "first")
	s.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("6")
	require.NoError(t, w.client.Update(t.Context(), s))
	conflicts = 1
	require.Equal(t, afterConflict, w.pass(t).RequeueAfter)
	w.pass(t)
	require.Equal(t, "6", w.read(t, "first").Status.Resources.Cpu().String(), "it does not rest as if the request were the same")
}

func TestSupply(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ProviderCluster)
		want   int
	}{
		"as it is":            {func(*v1alpha1.ProviderCluster) {}, 1},
		"enabled":             {func(p *v1alpha1.ProviderCluster) { p.Spec.Enabled = ptr.To(true) }, 1},
		"disabled":            {func(p *v1alpha1.ProviderCluster) { p.Spec.Enabled = ptr.To(false) }, 0},
		"cordoned":            {func(p *v1alpha1.ProviderCluster) { p.Spec.Cordoned = true }, 0},
		"drained":             {func(p *v1alpha1.ProviderCluster) { p.Spec.Drain = true }, 0},
		"that grants nothing": {func(p *v1alpha1.ProviderCluster) { p.Status.Resources.Granted = nil }, 0},
		"that cannot be reached": {func(p *v1alpha1.ProviderCluster) {
			p.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False"}}
		}, 1},
	} {
		t.Run("a provider "+name, func(t *testing.T) {
			s := supplyOf([]v1alpha1.ProviderCluster{*provider("p1", "8", tc.change)})
			require.Equal(t, tc.want, s.providers)
			require.Equal(t, int64(tc.want)*8000, s.sum[corev1.ResourceCPU])
		})
	}
}

func TestRegionsAreALabelsValue(t *testing.T) {
	long := strings.Repeat("x", 30)
	for want, regions := range map[string][]string{
		"":                      nil,
		"eu_us":                 {"eu", "us"},
		"New-York":              {"New York"},
		"eu":                    {"--", "eu", "eu_"},
		long + "_" + long[:29]:  {long, long[:29], "dropped"},
		"s-d":                   {"süd"},
		strings.Repeat("y", 63): {strings.Repeat("y", 63), "z"},
	} {
		require.Equal(t, want, regionsValue(regions))
	}
}

func TestOnlyWhatChangesTheSumIsLookedAt(t *testing.T) {
	kpis := provider("p1", "8")
	kpis.Status.KPIs.Started = 7
	spec := provider("p1", "8")
	spec.Generation = 2
	for name, tc := range map[string]struct {
		after *v1alpha1.ProviderCluster
		want  bool
	}{
		"KPIs": {kpis, false}, "the spec": {spec, true}, "the grant": {provider("p1", "9"), true},
	} {
		require.Equal(t, tc.want, supplyChanged().Update(event.UpdateEvent{ObjectOld: provider("p1", "8"), ObjectNew: tc.after}), name)
	}
}

// A request for 0 of a resource is granted, even of an unknown resource.
func TestConsumersCannotCreateManyMetrics(t *testing.T) {
	slice := newSlice("first", "6")
	slice.Spec.Resources["example.org/made-up"] = resource.MustParse("0")
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8"), slice)
	w.pass(t)
	require.Equal(t, authv1beta1.ResourceSliceConditionAccepted, resourcesOf(w.read(t, "first")).Status)
	families, err := w.registry.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			require.NotContains(t, metric.String(), "made-up", family.GetName())
		}
	}
}

func limit(consumer, cpu string) *v1alpha1.ConsumerCluster {
	c := &v1alpha1.ConsumerCluster{ObjectMeta: metav1.ObjectMeta{Name: consumer}}
	c.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return c
}

// Two slices do not both get the rest of a limit: neither at once, nor while a third one cannot release its part.
func TestTheLimitOfAConsumerCountsWhatIsWritten(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "10"), limit("c2", "1"),
		newSlice("first", "6"), newSlice("second", "6"))
	w.pass(t)
	require.Equal(t, "6", w.read(t, "first").Status.Resources.Cpu().String())
	require.Nil(t, w.read(t, "second").Status.Resources)
	require.Equal(t, "cpu: 6 requested, 4 left of the limit 10 of ConsumerCluster c1", resourcesOf(w.read(t, "second")).Message)

	var c v1alpha1.ConsumerCluster
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "c1"}, &c))
	c.Spec.Limits[corev1.ResourceCPU] = resource.MustParse("12")
	require.NoError(t, w.client.Update(t.Context(), &c))
	w.pass(t)
	require.Equal(t, "6", w.read(t, "second").Status.Resources.Cpu().String())

	w = newWorld(t, failing("stays"), tenant("Active"), provider("p1", "48"), limit("c1", "10"),
		newSlice("stays", "1", withGrant("8", dayOne)), newSlice("grows", "6"), newSlice("small", "2"))
	_, err := w.Reconcile(t.Context(), ctrl.Request{})
	require.ErrorContains(t, err, "status of ResourceSlice liqo-tenant-c1/stays")
	require.Nil(t, w.read(t, "grows").Status.Resources, "the limit has room for 2 until the other releases 7")
	require.Equal(t, "2", w.read(t, "small").Status.Resources.Cpu().String())
}

// podOf is a pod that runs here and was created with the certificate of a slice.
func podOf(slice *authv1beta1.ResourceSlice, name, cpu string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-c1", Name: name, UID: types.UID(name), Labels: map[string]string{
			forge.LiqoOriginClusterIDKey: "c1", consts.CreatorLabelKey: authentication.CommonNameResourceSliceCSR(slice),
			consts.ManagedByLabelKey: consts.ManagedByShadowPodValue,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return p
}

// later runs one more pass after the recent grants no longer count.
func (w *world) later(t *testing.T) ctrl.Result {
	t.Helper()
	w.now = w.now.Add(w.cfg.Interval)
	return w.pass(t)
}

func (w *world) replace(t *testing.T, slice *authv1beta1.ResourceSlice) {
	t.Helper()
	require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), slice.DeepCopy())))
	require.NoError(t, w.client.Create(t.Context(), slice))
}

// Liqo's webhook was down, and its failurePolicy is Ignore. The consumer has no grant that they could run in.
func TestPodsWithoutTheirCreatorCountForTheirConsumer(t *testing.T) {
	slice := newSlice("slice", "8")
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "10"), slice.DeepCopy())
	for _, creator := range []string{"", "somebody-else"} {
		pod := podOf(slice, "pod-"+creator, "2")
		delete(pod.Labels, consts.CreatorLabelKey)
		if creator != "" {
			pod.Labels[consts.CreatorLabelKey] = creator
		}
		require.NoError(t, w.client.Create(t.Context(), pod))
	}
	w.pass(t)
	require.Equal(t, "cpu: 8 requested, 6 left of the limit 10 of ConsumerCluster c1", resourcesOf(w.read(t, "slice")).Message)
}

// unlabelled is a pod of consumer c1 whose creator Liqo's webhook did not label.
func unlabelled(name, cpu string) *corev1.Pod {
	p := podOf(newSlice("", "0"), name, cpu)
	delete(p.Labels, consts.CreatorLabelKey)
	return p
}

// ofC2 assigns a slice to another consumer.
func ofC2(s *authv1beta1.ResourceSlice) {
	s.Labels["liqo.io/originID"], s.Spec.ConsumerClusterID = "c2", ptr.To(liqov1beta1.ClusterID("c2"))
	s.Namespace = "liqo-tenant-c2"
}

// Liqo enforces no quotas, so that its webhook labels no pod.
func TestPodsWithoutTheirCreatorCountWithinTheGrants(t *testing.T) {
	ofOther := func(w *world, name string) *authv1beta1.ResourceSlice {
		var s authv1beta1.ResourceSlice
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-c2", Name: name}, &s))
		return &s
	}
	bound := unlabelled("bound", "5")
	bound.Spec.NodeName = "liqo-broker"
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), tenantC2(), provider("p1", "48"), limit("c1", "10"),
		bound, unlabelled("unbound", "3"),
		newSlice("old", "6", withGrant("6", dayOne)), newSlice("young", "4", withGrant("4", dayOne)),
		newSlice("other", "10", ofC2, withGrant("10", dayOne)))
	grants := func() []string {
		return []string{
			w.read(t, "old").Status.Resources.Cpu().String(), w.read(t, "young").Status.Resources.Cpu().String(),
			ofOther(w, "other").Status.Resources.Cpu().String(),
		}
	}
	for range 3 {
		w.later(t)
		require.Equal(t, []string{"6", "4", "10"}, grants(), "8 are in use of 10")
	}
	require.NoError(t, w.client.Create(t.Context(), newSlice("rest", "28", ofC2)))
	w.later(t)
	require.Equal(t, "28", ofOther(w, "rest").Status.Resources.Cpu().String(), "nothing is in use beyond the grants")

	// 12 are in use of 10.
	require.NoError(t, w.client.Delete(t.Context(), ofOther(w, "rest")))
	require.NoError(t, w.client.Create(t.Context(), unlabelled("beyond", "4")))
	for range 3 {
		w.later(t)
		require.Equal(t, []string{"6", "4", "10"}, grants(), "it shrinks no grant, and so not again and again")
	}
	require.NoError(t, w.client.Create(t.Context(), newSlice("rest", "27", ofC2)))
	require.NoError(t, w.client.Create(t.Context(), newSlice("more", "9")))
	var c v1alpha1.ConsumerCluster
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "c1"}, &c))
	c.Spec.Limits[corev1.ResourceCPU] = resource.MustParse("20")
	require.NoError(t, w.client.Update(t.Context(), &c))
	require.Equal(t, w.cfg.Interval, w.later(t).RequeueAfter)
	require.Equal(t, "cpu: 27 requested, 26 left of 48", resourcesOf(ofOther(w, "rest")).Message)
	require.Equal(t, "cpu: 9 requested, 8 left of the limit 20 of ConsumerCluster c1", resourcesOf(w.read(t, "more")).Message)

	// A grant that becomes smaller frees no capacity below the usage of the running pods, neither at once nor later.
	old := w.read(t, "old")
	old.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("1")
	require.NoError(t, w.client.Update(t.Context(), old))
	for range 3 {
		w.later(t)
		require.Equal(t, []string{"1", "4", "10"}, grants())
		require.Equal(t, "cpu: 27 requested, 26 left of 48", resourcesOf(ofOther(w, "rest")).Message)
		require.Equal(t, "cpu: 9 requested, 8 left of the limit 20 of ConsumerCluster c1", resourcesOf(w.read(t, "more")).Message)
	}
}

// The part of a grant that pods with a creator use, and the grants of Liqo's own class, do not count twice.
func TestPodsWithoutTheirCreatorShareTheGrantsWithOthers(t *testing.T) {
	foreign, slice := newSlice("foreign", "4", withGrant("4", dayOne)), newSlice("slice", "10", withGrant("10", dayOne))
	foreign.Spec.Class = "default"
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "20"), foreign, slice,
		podOf(slice, "labelled", "7"), podOf(foreign, "elsewhere", "3"), unlabelled("unlabelled", "4"), newSlice("next", "11"))
	w.pass(t)
	require.Equal(t, "cpu: 11 requested, 10 left of the limit 20 of ConsumerCluster c1",
		resourcesOf(w.read(t, "next")).Message, "3 and 1 have room")
	require.NoError(t, w.client.Create(t.Context(), unlabelled("beyond", "2")))
	w.later(t)
	require.Equal(t, "cpu: 11 requested, 8 left of the limit 20 of ConsumerCluster c1", resourcesOf(w.read(t, "next")).Message)

	// Their slice is gone, with its grant.
	require.NoError(t, w.client.Delete(t.Context(), w.read(t, "slice")))
	w.later(t)
	require.Equal(t, "cpu: 11 requested, 8 left of the limit 20 of ConsumerCluster c1", resourcesOf(w.read(t, "next")).Message)
	w.later(t)
	require.Equal(t, "cpu: 11 requested, 8 left of the limit 20 of ConsumerCluster c1",
		resourcesOf(w.read(t, "next")).Message, "7 and 5 still run")
}

// A consumer has pods that outlive their slice, or its grant, and asks for another one.
func TestPodsBeyondTheGrantOfTheirSliceCount(t *testing.T) {
	const denied = "cpu: 6 requested, 2 left of the limit 10 of ConsumerCluster c1"
	former := newSlice("former", "8", func(s *authv1beta1.ResourceSlice) {
		s.Spec.Resources[corev1.ResourcePods] = resource.MustParse("2")
	})
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "10"), former.DeepCopy())
	w.pass(t)
	stays, leaves := podOf(former, "stays", "5"), podOf(former, "leaves", "3")
	stays.Spec.NodeName = "liqo-broker"
	require.NoError(t, w.client.Create(t.Context(), stays))
	require.NoError(t, w.client.Create(t.Context(), leaves))
	w.later(t)
	require.Equal(t, "8", w.read(t, "former").Status.Resources.Cpu().String(), "what they request is in the grant")

	require.NoError(t, w.client.Delete(t.Context(), w.read(t, "former")))
	w.replace(t, newSlice("next", "6"))
	require.Equal(t, w.cfg.Interval, w.pass(t).RequeueAfter, "no event says that they are gone")
	require.Equal(t, denied, resourcesOf(w.read(t, "next")).Message)
	w.later(t)
	require.Equal(t, denied, resourcesOf(w.read(t, "next")).Message)

	// A slice of that name has these pods again.
	w.replace(t, newSlice("former", "9"))
	w.replace(t, newSlice("small", "2"))
	require.Equal(t, w.cfg.Interval, w.later(t).RequeueAfter)
	require.Equal(t, "9", w.read(t, "former").Status.Resources.Cpu().String())
	require.Equal(t, "cpu: 2 requested, 1 left of the limit 10 of ConsumerCluster c1", resourcesOf(w.read(t, "small")).Message)
	// It does not free capacity by requesting less than its pods do.
	w.replace(t, newSlice("former", "1"))
	w.later(t)
	w.later(t)
	require.Equal(t, "1", w.read(t, "former").Status.Resources.Cpu().String())
	require.Equal(t, "2", w.read(t, "small").Status.Resources.Cpu().String(), "2 of 10 are left beside 8")
	require.Nil(t, w.read(t, "next").Status.Resources)

	require.NoError(t, w.client.Delete(t.Context(), stays))
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(leaves), leaves))
	leaves.Status.Phase = corev1.PodSucceeded
	require.NoError(t, w.client.Status().Update(t.Context(), leaves))
	w.later(t)
	require.Equal(t, "6", w.read(t, "next").Status.Resources.Cpu().String())
}

// ShadowPods that were created just before their slice was deleted have no pods yet.
func TestAGrantCountsForSomeTimeAfterItsEnd(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "10"), newSlice("former", "8"))
	w.pass(t)
	require.NoError(t, w.client.Delete(t.Context(), w.read(t, "former")))
	w.replace(t, newSlice("next", "6"))
	w.now = w.now.Add(time.Hour)
	require.Equal(t, w.cfg.Interval, w.pass(t).RequeueAfter)
	require.Nil(t, w.read(t, "next").Status.Resources)
	w.now = w.now.Add(w.cfg.Interval - time.Second)
	w.pass(t)
	require.Nil(t, w.read(t, "next").Status.Resources)
	w.now = w.now.Add(time.Second)
	w.pass(t)
	require.Equal(t, "6", w.read(t, "next").Status.Resources.Cpu().String())
	require.Len(t, w.former, 1)

	// The request is lowered instead.
	next := w.read(t, "next")
	next.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("1")
	require.NoError(t, w.client.Update(t.Context(), next))
	w.replace(t, newSlice("another", "5"))
	w.pass(t)
	require.Equal(t, "1", w.read(t, "next").Status.Resources.Cpu().String())
	require.Nil(t, w.read(t, "another").Status.Resources)
	w.pass(t)
	require.Nil(t, w.read(t, "another").Status.Resources)
	w.later(t)
	require.Equal(t, "5", w.read(t, "another").Status.Resources.Cpu().String())
}

// Each recent grant is remembered for each resource, for a new interval after each change.
func TestEachGrantOfAMomentAgoCounts(t *testing.T) {
	const interval = 30 * time.Second
	of := func(cpu, memory int64) resources.Amounts {
		return resources.Amounts{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
	}
	f, who, now := former{}, scheduler.Account{Consumer: "c1", Creator: "a"}, dayOne
	require.Equal(t, of(8, 5), f.observe(who, of(8, 5), now, interval))
	require.Equal(t, of(8, 10), f.observe(who, of(7, 10), now, interval))
	now = now.Add(interval - time.Second)
	require.Equal(t, of(8, 10), f.observe(who, nil, now, interval))
	now = now.Add(interval - time.Second)
	require.Equal(t, of(8, 10), f.observe(who, nil, now, interval))
	now = now.Add(time.Second)
	require.Empty(t, f.observe(who, nil, now, interval))
	require.Empty(t, f)
}

// Any user who may create pods in a namespace of this cluster may label them so.
func TestPodsOfOtherNamespacesDoNotCount(t *testing.T) {
	former := newSlice("former", "8")
	stranger := podOf(former, "stranger", "1000")
	stranger.Namespace = "ours"
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "10"), stranger, newSlice("all", "10"))
	w.pass(t)
	require.Equal(t, "10", w.read(t, "all").Status.Resources.Cpu().String())
}

// A slice of another class takes the name of a deleted one: its quota is the quota of Liqo's grant.
func TestASliceOfAnotherClassCoversItsOwnGrantOnly(t *testing.T) {
	foreign := newSlice("former", "1", withGrant("1", dayOne))
	foreign.Spec.Class = "default"
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "48"), limit("c1", "10"), foreign, podOf(foreign, "stays", "8"),
		newSlice("next", "4"))
	w.pass(t)
	require.Equal(t, "cpu: 4 requested, 3 left of the limit 10 of ConsumerCluster c1", resourcesOf(w.read(t, "next")).Message)
}

// Others keep their grants, and get no more than the free capacity. Liqo's own grants do not count against the broker.
func TestPodsBeyondTheGrantOfTheirSliceTakeNothingFromOthers(t *testing.T) {
	former, foreign := newSlice("former", "8"), newSlice("foreign", "4", withGrant("4", dayOne))
	foreign.Spec.Class = "default"
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "10"), foreign, podOf(former, "stays", "8"),
		podOf(foreign, "elsewhere", "4"), newSlice("old", "5", withGrant("5", dayOne)), newSlice("large", "1"))
	w.pass(t)
	require.Equal(t, "5", w.read(t, "old").Status.Resources.Cpu().String())
	require.Equal(t, "cpu: 1 requested, 0 left of 10", resourcesOf(w.read(t, "large")).Message)
}

// A backup has no status, so that the providers of a restored cluster grant nothing until the broker has filled it in.
func TestNoOfferShrinksBeforeTheStatusOfAllProvidersIsThere(t *testing.T) {
	restored := func(pc *v1alpha1.ProviderCluster) { pc.Status = v1alpha1.ProviderClusterStatus{} }
	disabled := func(pc *v1alpha1.ProviderCluster) { restored(pc); pc.Spec.Enabled = ptr.To(false) }
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8", restored), provider("p2", "2"),
		provider("p3", "1", disabled), newSlice("old", "10", withGrant("10", dayOne)), newSlice("new", "1"))
	require.Equal(t, statusRecheck, w.pass(t).RequeueAfter)
	require.Equal(t, "10", w.read(t, "old").Status.Resources.Cpu().String())
	require.Empty(t, resourcesOf(w.read(t, "new")), "it is neither granted nor denied")

	var p1 v1alpha1.ProviderCluster
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "p1"}, &p1))
	p1.Status.Resources.Granted = list("9")
	require.NoError(t, w.client.Status().Update(t.Context(), &p1))
	w.pass(t)
	require.Equal(t, "10", w.read(t, "old").Status.Resources.Cpu().String())
	require.Equal(t, authv1beta1.ResourceSliceConditionAccepted, resourcesOf(w.read(t, "new")).Status)
}

// ProviderClusters that are not restored are made again one after the other.
func TestNoOfferShrinksBeforeAllProvidersAreThere(t *testing.T) {
	of := func(name, provider string, with map[string]string) *offloadingv1beta1.VirtualNode {
		return &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: name, Labels: with},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(provider)},
		}
	}
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p2", "2"), newSlice("old", "10", withGrant("10", dayOne)),
		of("p1", "p1", nil), of("p2", "p2", nil), of("other", "p3", map[string]string{"broker": "another"}))
	var err error
	w.cfg.Providers, err = labels.Parse("broker!=another")
	require.NoError(t, err)
	require.Equal(t, statusRecheck, w.pass(t).RequeueAfter)
	require.Equal(t, "10", w.read(t, "old").Status.Resources.Cpu().String())

	require.NoError(t, w.client.Create(t.Context(), provider("p1", "8")))
	var p1 v1alpha1.ProviderCluster
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "p1"}, &p1))
	p1.Status.Resources.Granted = list("7")
	require.NoError(t, w.client.Status().Update(t.Context(), &p1))
	w.pass(t)
	require.Equal(t, "9", w.read(t, "old").Status.Resources.Cpu().String(), "p3 is another broker's")
}

// A provider that is no longer peered grants nothing, and the broker stops waiting for a status that is never written.
func TestAStatusThatIsMissingIsWaitedForSomeTime(t *testing.T) {
	empty := func(pc *v1alpha1.ProviderCluster) { pc.Status = v1alpha1.ProviderClusterStatus{} }
	notPeered := func(pc *v1alpha1.ProviderCluster) {
		empty(pc)
		pc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionFalse}}
	}
	w := newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8", notPeered), provider("p2", "2"),
		newSlice("old", "10", withGrant("10", dayOne)))
	w.pass(t)
	require.Equal(t, "2", w.read(t, "old").Status.Resources.Cpu().String())

	w = newWorld(t, interceptor.Funcs{}, tenant("Active"), provider("p1", "8", empty), provider("p2", "2"),
		newSlice("old", "10", withGrant("10", dayOne)))
	w.pass(t)
	w.now = w.now.Add(statusGrace - time.Second)
	w.pass(t)
	require.Equal(t, "10", w.read(t, "old").Status.Resources.Cpu().String())
	w.now = w.now.Add(time.Second)
	w.pass(t)
	require.Equal(t, "2", w.read(t, "old").Status.Resources.Cpu().String())

	var p2 v1alpha1.ProviderCluster
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "p2"}, &p2))
	p2.Status = v1alpha1.ProviderClusterStatus{}
	require.NoError(t, w.client.Status().Update(t.Context(), &p2))
	w.now = w.now.Add(time.Hour)
	w.pass(t)
	require.Equal(t, "2", w.read(t, "old").Status.Resources.Cpu().String(), "that of another provider has a time of its own")
}
