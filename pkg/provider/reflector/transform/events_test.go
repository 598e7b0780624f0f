package transform_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/trace"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	liqoinformers "github.com/liqotech/liqo/pkg/client/informers/externalversions"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/event"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

const (
	patience = 10 * time.Second
	tick     = 5 * time.Millisecond
)

func TestEventsAreOnThePodWithTheirCount(t *testing.T) {
	forge.Init("home", "p1", "vnode", "10.0.0.1")
	local := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "local"}})
	remote := fake.NewClientset()
	home, away := informers.NewSharedInformerFactory(local, 0), informers.NewSharedInformerFactory(remote, 0)
	liqo := liqoinformers.NewSharedInformerFactory(liqofake.NewSimpleClientset(), 0)
	forging, events := forge.NewForgingOpts(nil), record.NewBroadcaster()
	t.Cleanup(events.Shutdown)
	reflector := transform.Events(event.NewNamespacedEventReflector)(&options.NamespacedOpts{
		LocalNamespace: "ns", RemoteNamespace: "ns-home", LocalClient: local, RemoteClient: remote,
		LocalFactory: home, RemoteFactory: away, RemoteLiqoFactory: liqo, LocalLiqoFactory: liqo,
		EventBroadcaster: events, Ready: func() bool { return true },
		HandlerFactory: func(options.Keyer, ...options.EventFilter) cache.ResourceEventHandler {
			return cache.ResourceEventHandlerFuncs{}
		},
		ReflectionType: offloadingv1beta1.DenyList, ForgingOpts: &forging,
	})
	home.Start(t.Context().Done())
	away.Start(t.Context().Done())
	home.WaitForCacheSync(t.Context().Done())
	away.WaitForCacheSync(t.Context().Done())
	t.Cleanup(func() { home.Shutdown(); away.Shutdown() })
	seen := func(lister func() (*corev1.Event, error), count int32) {
		t.Helper()
		require.Eventually(t, func() bool {
			e, err := lister()
			return err == nil && e.Count == count
		}, patience, tick)
	}
	happened := func(e *corev1.Event) (*corev1.Event, error) {
		t.Helper()
		if _, err := remote.CoreV1().Events("ns-home").Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
			_, err = remote.CoreV1().Events("ns-home").Update(t.Context(), e, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		seen(func() (*corev1.Event, error) { return away.Core().V1().Events().Lister().Events("ns-home").Get(e.Name) }, e.Count)
		err := reflector.Handle(trace.ContextWithTrace(t.Context(), trace.New("test")), e.Name)
		got, missing := local.CoreV1().Events("ns").Get(t.Context(), e.Name, metav1.GetOptions{})
		require.NoError(t, missing)
		return got, err
	}

	began := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	refused := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "web.1"}, Reason: "FailedCreatePod", Message: "exceeded quota",
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowPod", Namespace: "ns-home", Name: "web", UID: "shadow",
		},
		FirstTimestamp: began, LastTimestamp: began, Count: 1,
	}
	got, err := happened(refused)
	require.NoError(t, err)
	require.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "web", UID: "local"}, got.InvolvedObject)
	seen(func() (*corev1.Event, error) { return home.Core().V1().Events().Lister().Events("ns").Get("web.1") }, 1)

	again := refused.DeepCopy()
	again.Count, again.LastTimestamp = 40, metav1.NewTime(began.Add(time.Minute))
	got, err = happened(again)
	require.NoError(t, err)
	require.EqualValues(t, 40, got.Count)
	require.True(t, again.LastTimestamp.Equal(&got.LastTimestamp))
	seen(func() (*corev1.Event, error) { return home.Core().V1().Events().Lister().Events("ns").Get("web.1") }, 40)

	once := again.DeepCopy()
	once.Count = 41
	got, err = happened(once)
	require.Error(t, err, "it is requeued: the count was written a moment ago")
	require.EqualValues(t, 40, got.Count)
}
