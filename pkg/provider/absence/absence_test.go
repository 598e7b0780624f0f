package absence

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	liqoinformers "github.com/liqotech/liqo/pkg/client/informers/externalversions"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// liqos is a fake of Liqo's reflector, which deletes the ShadowPod of each pod that is not in the cache.
type liqos struct {
	manager.NamespacedReflector
	handled int
}

func (l *liqos) Handle(context.Context, string) error {
	l.handled++
	return nil
}

// world is a namespace with a running pod, its ShadowPod, and a virtual kubelet that was restarted.
type world struct {
	pod    *corev1.Pod
	shadow *offloadingv1beta1.ShadowPod
	// cached is true if the pod is in the cache.
	cached bool
	home   *fake.Clientset
	below  *liqos
}

func newWorld() *world {
	forge.Init("home", "p1", "liqo-p1", "10.0.0.1")
	w := &world{
		pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}, Spec: corev1.PodSpec{NodeName: "liqo-p1"}},
		shadow: &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-home", Name: "a",
			Labels: labels.Merge(forge.ReflectionLabels(), labels.Set{forge.LiqoOriginClusterNodeName: "liqo-p1"}),
		}},
		below: &liqos{},
	}
	transform.HidePodUID(w.shadow, "uid")
	return w
}

// reflector returns the reflector of the namespace.
func (w *world) reflector(tb testing.TB) manager.NamespacedReflector {
	tb.Helper()
	w.home = fake.NewClientset(w.pod)
	locals := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if w.cached {
		require.NoError(tb, locals.Add(w.pod))
	}
	remote := liqoinformers.NewSharedInformerFactory(liqofake.NewSimpleClientset(), 0)
	require.NoError(tb, remote.Offloading().V1beta1().ShadowPods().Informer().GetIndexer().Add(w.shadow))
	return Confirm(
		func(namespace string) corev1listers.PodNamespaceLister {
			return corev1listers.NewPodLister(locals).Pods(namespace)
		},
		w.home.CoreV1().Pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "liqo-p1" },
		func(*options.NamespacedOpts) manager.NamespacedReflector { return w.below },
	)(&options.NamespacedOpts{
		LocalNamespace: "ns", RemoteNamespace: "ns-home", RemoteLiqoFactory: remote,
		LocalFactory: informers.NewSharedInformerFactory(w.home, 0),
	})
}

func TestAShadowPodIsDeletedOnlyIfTheAPIServerShowsNoPodForIt(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change func(*world)
		// waits means that nothing is deleted; reads is the number of reads of the pod from the API server.
		waits bool
		reads int
	}{
		"the cache lags": {func(*world) {}, true, 1},
		"the cache lags, and an older one forwarded": {func(w *world) { w.shadow.GenerateName = "" }, true, 1},
		"the cache shows the pod":                    {func(w *world) { w.cached = true }, false, 0},
		"the pod is gone":                            {func(w *world) { w.pod.Name = "other" }, false, 1},
		"another pod has the name":                   {func(w *world) { w.pod.UID = "next" }, false, 1},
		"the pod is served by another":               {func(w *world) { w.pod.Spec.NodeName = "liqo-p2" }, false, 1},
		"the ShadowPod is being deleted":             {func(w *world) { w.shadow.DeletionTimestamp = &now }, false, 0},
		"another virtual kubelet made the ShadowPod": {
			func(w *world) { w.shadow.Labels[forge.LiqoOriginClusterNodeName] = "liqo-p2" }, false, 0,
		},
		"nothing of it is there": {func(w *world) { w.shadow.Name = "other" }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			err := w.reflector(t).Handle(t.Context(), "a")
			require.Len(t, w.home.Actions(), tc.reads)
			if tc.waits {
				require.ErrorIs(t, err, ErrLags)
				require.Zero(t, w.below.handled)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, w.below.handled)
		})
	}
}

func TestAShadowPodStaysWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	w := newWorld()
	reflector := w.reflector(t)
	away := errors.New("the API server is away")
	w.home.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return away != nil, nil, away })
	require.ErrorIs(t, reflector.Handle(t.Context(), "a"), away)
	require.Zero(t, w.below.handled)
	away = nil
	require.NoError(t, w.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "a"))
	require.NoError(t, reflector.Handle(t.Context(), "a"))
	require.Equal(t, 1, w.below.handled)
}
