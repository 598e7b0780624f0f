package accounting

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

const interval = time.Second

// oneInformer has the informer of the pods.
type oneInformer struct {
	cache.Informers
	informer cache.Informer
}

func (o oneInformer) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return o.informer, nil
}

// world is a broker's cluster. All its pods are bound to the broker's Node.
type world struct {
	t     *testing.T
	kube  *fake.Clientset
	began time.Time
	file  string
	home  client.Client
	// accountant is the one that runs.
	accountant *Accountant
	events     *record.FakeRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ofConsumer := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-c1", Labels: map[string]string{consts.RemoteClusterID: "c1"},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "tenant/map"},
	}}
	known, err := scheme.New()
	require.NoError(t, err)
	consumers := []client.Object{
		ofConsumer,
		&v1alpha1.ConsumerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1"},
			Spec:       v1alpha1.ConsumerClusterSpec{Budget: &v1alpha1.Money{Amount: "2", Currency: "EUR"}},
		},
		&v1alpha1.ConsumerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c2"},
			Spec:       v1alpha1.ConsumerClusterSpec{Budget: &v1alpha1.Money{Amount: "1", Currency: "USD"}},
		},
	}
	return &world{
		events: record.NewFakeRecorder(10),
		t:      t, kube: fake.NewClientset(), began: time.Now(), file: filepath.Join(t.TempDir(), "ledger.db"),
		home: fakeclient.NewClientBuilder().WithScheme(known).WithObjects(consumers...).Build(),
	}
}

// lead runs an Accountant until the function that it returns is called, which returns the error of Run.
func (w *world) lead() (stop func() error) {
	w.t.Helper()
	factory := informers.NewSharedInformerFactory(w.kube, 0)
	informer := factory.Core().V1().Pods().Informer()
	ctx, cancel := context.WithCancel(w.t.Context())
	factory.Start(ctx.Done())
	metrics, err := NewMetrics(prometheus.NewPedanticRegistry())
	require.NoError(w.t, err)
	a := New(Config{
		Events: w.events,
		Log:    testr.New(w.t), Clock: clock.RealClock{}, Pods: oneInformer{informer: informer}, Client: w.home, Metrics: metrics,
		Prices: func() map[string]price.Lists {
			return map[string]price.Lists{"q": {{Currency: "EUR", PerHour: map[corev1.ResourceName]float64{"cpu": 1}}}}
		},
		Settings: Settings{File: w.file, Interval: interval, Retention: time.Hour},
	})
	w.accountant = a
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	time.Sleep(interval)
	return func() error {
		cancel()
		factory.Shutdown()
		return <-done
	}
}

// shows checks that the ledger has these segments after its next write: provider, minutes, and CPUs.
func (w *world) shows(want ...string) {
	w.t.Helper()
	time.Sleep(2 * interval)
	require.Equal(w.t, want, w.segments())
}

func (w *world) segments() (all []string) {
	store, err := ledger.OpenReadOnly(w.t.Context(), w.file)
	require.NoError(w.t, err)
	defer store.Close()
	from, to := w.began.Add(-time.Hour), w.began.Add(24*time.Hour)
	require.NoError(w.t, store.Segments(w.t.Context(), from, to, nil, func(s *ledger.Segment) error {
		stop := "…"
		if !s.Stop.IsZero() {
			stop = fmt.Sprint(s.Stop.Sub(w.began).Round(time.Minute).Minutes())
		}
		start := s.Start.Sub(w.began).Round(time.Minute).Minutes()
		all = append(all, fmt.Sprintf("%s/%s %s %g-%s %d", s.Consumer, s.Pod, s.Provider, start, stop, s.Requests[corev1.ResourceCPU]))
		return nil
	}))
	return all
}

func (w *world) pod(name, provider string, assigned time.Duration) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-c1", Name: name, UID: types.UID(name), Labels: map[string]string{},
			Annotations: map[string]string{v1alpha1.AssignedAtAnnotation: w.began.Add(assigned).Format(time.RFC3339Nano)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		}}}},
	}
	if provider != "" {
		p.Labels[v1alpha1.ProviderLabel], p.Labels[v1alpha1.VirtualNodeLabel] = provider, provider
	}
	return p
}

func (w *world) write(p *corev1.Pod) {
	w.t.Helper()
	pods := w.kube.CoreV1().Pods(p.Namespace)
	_, err := pods.Update(w.t.Context(), p, metav1.UpdateOptions{})
	if err != nil {
		_, err = pods.Create(w.t.Context(), p, metav1.CreateOptions{})
	}
	require.NoError(w.t, err)
}

// minute waits until a time.
func (w *world) minute(n int) { time.Sleep(time.Until(w.began.Add(time.Duration(n) * time.Minute))) }

func TestPodsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.pod("web-0", "q", -time.Minute))
		w.write(w.pod("waits", "", 0))
		stop := w.lead()
		w.shows("c1/web-0 q -1-… 2000")

		w.minute(10) // It leaves its provider, and is assigned to another one later.
		w.write(w.pod("web-0", "", -time.Minute))
		w.shows("c1/web-0 q -1-10 2000")
		w.minute(12)
		w.write(w.pod("web-0", "r", 12*time.Minute))
		w.shows("c1/web-0 q -1-10 2000", "c1/web-0 r 12-… 2000")

		w.minute(15)
		ended := w.pod("web-0", "r", 12*time.Minute)
		ended.Status.Phase = corev1.PodSucceeded
		ended.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(w.began.Add(14 * time.Minute))},
		}}}
		w.write(ended)
		w.shows("c1/web-0 q -1-10 2000", "c1/web-0 r 12-14 2000")
		require.NoError(t, stop())
	})
}

func TestAnotherLeaderContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"gone", "moved", "stays"} {
			w.write(w.pod(name, "q", 0))
		}
		stop := w.lead()
		w.shows("c1/gone q 0-… 2000", "c1/moved q 0-… 2000", "c1/stays q 0-… 2000")
		w.minute(5)
		require.NoError(t, stop())

		// No broker leads meanwhile.
		w.minute(60)
		require.NoError(t, w.kube.CoreV1().Pods("shop-c1").Delete(t.Context(), "gone", metav1.DeleteOptions{}))
		w.write(w.pod("moved", "r", 50*time.Minute))
		w.write(w.pod("new", "q", 55*time.Minute))
		stop = w.lead()
		w.shows("c1/gone q 0-5 2000", "c1/moved q 0-5 2000", "c1/stays q 0-… 2000", "c1/moved r 50-… 2000", "c1/new q 55-… 2000")

		// One that leads no more writes nothing.
		store, err := ledger.Open(t.Context(), w.file)
		require.NoError(t, err)
		_, _, err = store.Lead(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.Close())
		time.Sleep(2 * interval)
		require.ErrorIs(t, stop(), ledger.ErrFenced)
	})
}

// The broker assigns pods without a ledger, and writes it when it can.
func TestALedgerThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.pod("web-0", "q", 0))
		require.NoError(t, os.Mkdir(w.file, 0o755))
		stop := w.lead()
		w.minute(2)
		require.NoError(t, os.Remove(w.file))
		w.minute(3)
		w.shows("c1/web-0 q 0-… 2000")
		require.NoError(t, stop())
	})
}

// At q an hour of a CPU costs 1 EUR: two CPUs use the budget in an hour.
func TestABudgetIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.pod("web-0", "q", 0))
		stop := w.lead()
		w.minute(40)
		require.Empty(t, w.accountant.OverBudget(t.Context(), "c1"))
		require.Empty(t, w.events.Events)
		w.minute(50)
		require.Empty(t, w.accountant.OverBudget(t.Context(), "c1"))
		require.Contains(t, <-w.events.Events, "Warning BudgetNearlyUsed pods of consumer c1 have cost 1.6")
		w.minute(62)
		why := w.accountant.OverBudget(t.Context(), "c1")
		require.Equal(t, "the budget of consumer c1 for 2000-01 is used: 2 EUR", why)
		require.Contains(t, <-w.events.Events, "Warning BudgetUsed pods of consumer c1")
		require.Empty(t, w.accountant.OverBudget(t.Context(), "c2"), "it has no pods")
		require.Empty(t, w.accountant.OverBudget(t.Context(), ""), "nor has it a budget")
		w.minute(70)
		require.Empty(t, w.events.Events, "it is said once")

		// Another leader knows it, too.
		require.NoError(t, stop())
		fresh := New(Config{Clock: clock.RealClock{}, Client: w.home})
		require.Contains(t, fresh.OverBudget(t.Context(), "c1"), "the ledger is being read")
		require.Empty(t, fresh.OverBudget(t.Context(), "c3"), "it has no budget")
		fresh.began = time.Now()
		time.Sleep(maxUnknown + time.Second)
		require.Empty(t, fresh.OverBudget(t.Context(), "c1"), "the ledger cannot be read")
		stop = w.lead()
		require.Eventually(t, func() bool { return w.accountant.OverBudget(t.Context(), "c1") != "" }, 2*budgetInterval, interval)
		<-w.events.Events

		more := &v1alpha1.ConsumerCluster{}
		require.NoError(t, w.home.Get(t.Context(), client.ObjectKey{Name: "c1"}, more))
		more.Spec.Budget.Amount = "10"
		require.NoError(t, w.home.Update(t.Context(), more))
		time.Sleep(2 * budgetInterval)
		require.Empty(t, w.accountant.OverBudget(t.Context(), "c1"))
		require.NoError(t, stop())
	})
}

func TestABudgetIsOfAMonth(t *testing.T) {
	w := newWorld(t)
	store, err := ledger.Open(t.Context(), w.file)
	require.NoError(t, err)
	defer store.Close()
	_, _, err = store.Lead(t.Context())
	require.NoError(t, err)
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	book := ledger.NewBook(nil)
	h := &ledger.Holding{
		UID: "web-0", Consumer: "c1", Provider: "q", Assigned: end.Add(-time.Hour), Requests: resources.Amounts{"cpu": 2000},
	}
	book.Observe(end, h)
	prices := map[string]ledger.PriceChange{
		"q": {At: end, Lists: price.Lists{{Currency: "EUR", PerHour: map[corev1.ResourceName]float64{"cpu": 1}}}},
	}
	require.NoError(t, store.Write(t.Context(), end, book.Changed(), prices))

	now := clocktesting.NewFakeClock(end.Add(-time.Millisecond))
	a := New(Config{Log: testr.New(t), Clock: now, Client: w.home, Events: w.events})
	a.store = store
	for month, over := range []bool{false, true, false, true} {
		switch month {
		case 1:
			now.SetTime(end.Add(-time.Millisecond))
			h.Requests = resources.Amounts{"cpu": 2001}
			book.Observe(end.Add(-time.Hour+time.Millisecond), h)
			require.NoError(t, store.Write(t.Context(), end, book.Changed(), nil))
		case 2:
			now.SetTime(end.Add(time.Minute))
			require.NoError(t, store.Write(t.Context(), now.Now(), nil, nil))
		case 3:
			now.SetTime(end.Add(time.Hour))
			require.NoError(t, store.Write(t.Context(), now.Now(), nil, nil))
		}
		require.NoError(t, a.checkBudgets(t.Context()))
		require.Equal(t, over, a.OverBudget(t.Context(), "c1") != "", month)
	}
}

// A watch that began again may show the next pod of a name as a change of the pod before.
func TestAPodReplacesAnotherUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.pod("web-0", "q", 0))
		stop := w.lead()
		w.minute(5)
		next := w.pod("web-0", "r", 5*time.Minute)
		next.UID = "another"
		w.write(next)
		w.shows("c1/web-0 q 0-5 2000", "c1/web-0 r 5-… 2000")
		require.NoError(t, stop())
	})
}

// It was assigned after the list that the broker began with, and before all of it was observed.
func TestAPodIsAssignedWhileABrokerBegins(t *testing.T) {
	w := newWorld(t)
	store, err := ledger.Open(t.Context(), w.file)
	require.NoError(t, err)
	defer store.Close()
	a := New(Config{Log: testr.New(t), Clock: clocktesting.NewFakeClock(w.began), Client: w.home})
	a.book, a.seen = ledger.NewBook(nil), w.began.Add(-time.Hour)
	a.holding, a.again = map[types.UID]bool{}, map[types.UID]*corev1.Pod{}
	a.observe(t.Context(), w.pod("early", "", 0), true, false)
	a.observe(t.Context(), w.pod("early", "q", 0), false, false)
	a.book.ReleaseOthers(a.seen, a.holding)
	require.Len(t, a.book.Open(), 1)
}

func TestPodsWhoseEndIsNotKnown(t *testing.T) {
	finished := func(at int64) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Unix(at, 0)},
		}}
	}
	for name, tc := range map[string]struct {
		containers []corev1.ContainerStatus
		want       int64
	}{
		"no container was reported":      {nil, 0},
		"both ended":                     {[]corev1.ContainerStatus{finished(5), finished(7)}, 7},
		"one was not seen to have ended": {[]corev1.ContainerStatus{finished(5), {}}, 0},
		"of one the time is not known": {[]corev1.ContainerStatus{finished(5), {State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{},
		}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			end := endOf(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: tc.containers}})
			if tc.want == 0 {
				require.Zero(t, end)
				return
			}
			require.Equal(t, tc.want, end.Unix())
		})
	}
}

func TestAPodWhoseNamespaceIsNotCachedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var namespace corev1.Namespace
		require.NoError(t, w.home.Get(t.Context(), client.ObjectKey{Name: "shop-c1"}, &namespace))
		require.NoError(t, w.home.Delete(t.Context(), &namespace))
		w.write(w.pod("web-0", "q", 0))
		stop := w.lead()
		w.minute(1)
		require.Empty(t, w.segments())
		namespace.ResourceVersion = ""
		require.NoError(t, w.home.Create(t.Context(), &namespace))
		w.shows("c1/web-0 q 0-… 2000")
		require.NoError(t, stop())
	})
}

func TestChangesOfPricesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	k := &knownPrices{latest: map[string]ledger.PriceChange{}, inHour: map[string]int{}}
	recorded := 0
	record := func(now time.Time, perCPU float64) map[string]ledger.PriceChange {
		changes := k.changes(now, map[string]price.Lists{"q": {{PerHour: map[corev1.ResourceName]float64{"cpu": perCPU}}}})
		k.written(changes)
		recorded += len(changes)
		return changes
	}
	record(now, 0)
	require.Empty(t, record(now.Add(time.Second), 0), "nothing has changed")
	require.Equal(t, now.Add(time.Millisecond), record(now.Add(-time.Minute), 1)["q"].At, "the clock was set back")
	for i := range 1000 {
		record(now.Add(time.Duration(i)*time.Second), float64(i+2))
	}
	require.Equal(t, 2+maxPriceChanges, recorded, "two of the hours before")
	require.Len(t, record(now.Add(time.Hour), 5000), 1)
	require.Len(t, k.changes(now, map[string]price.Lists{"new": nil}), 1, "that it has none is recorded, too")
}

// A restart does not count an ended pod again, whose segment began later than its assignment by another clock.
func TestAnEndedPodIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.pod("job", "q", 0))
		stop := w.lead()
		w.minute(5)
		w.write(w.pod("job", "", 0))
		w.minute(6)
		w.write(w.pod("job", "r", 4*time.Minute)) // Assigned, it says, before it left.
		w.minute(8)
		ended := w.pod("job", "r", 4*time.Minute)
		ended.Status.Phase = corev1.PodSucceeded
		ended.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now())},
		}}}
		w.write(ended)
		want := []string{"c1/job q 0-5 2000", "c1/job r 5-8 2000"}
		w.shows(want...)
		require.NoError(t, stop())
		stop = w.lead()
		w.shows(want...)
		require.NoError(t, stop())
	})
}

// A pod is deleted while it is observed again.
func TestAPodIsGoneBeforeItsNamespaceWasRead(t *testing.T) {
	w := newWorld(t)
	a := New(Config{Log: testr.New(t), Clock: clock.RealClock{}, Client: w.home})
	a.book, a.again = ledger.NewBook(nil), map[types.UID]*corev1.Pod{}
	pod := w.pod("web-0", "q", 0)
	a.again[pod.UID] = pod
	a.release(pod)
	a.observe(t.Context(), pod, false, true)
	require.Empty(t, a.book.Open())
}
