package brokernode

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	offloadinglisters "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// actAsLiqo sets Liqo's package state with the identity of the virtual kubelet. It is the same in all tests of this
// package.
func actAsLiqo() { forge.Init("home", "p1", "p1-gpu", "10.0.0.1") }

// indexed returns a cache that contains the objects.
func indexed[T metav1.Object](t *testing.T, objects ...T) cache.Indexer {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, object := range objects {
		require.NoError(t, index.Add(object))
	}
	return index
}

// liqos is a fake of Liqo's reflector of a namespace.
type liqos struct {
	manager.NamespacedReflector
	handled []string
	err     error
}

func (l *liqos) Handle(_ context.Context, name string) error {
	l.handled = append(l.handled, name)
	return l.err
}

// A pod completes after the broker has started to move it, and before its ShadowPod is deleted.
func TestAPodThatEndsWhileItLeavesIsReported(t *testing.T) {
	actAsLiqo()
	now := metav1.Now()
	shadow := shadowOf("")
	there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "a"}, Status: corev1.PodStatus{
		Phase: corev1.PodSucceeded, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}},
		}},
	}}
	leaving := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "uid", Annotations: map[string]string{
			v1alpha1.MovingFromAnnotation: "p1-gpu", v1alpha1.MovingFromProviderAnnotation: "p1",
		},
	}, Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "Other", Status: corev1.ConditionTrue}}}}
	const refused = "the API server refuses this"
	type world struct {
		local  *corev1.Pod
		shadow *offloadingv1beta1.ShadowPod
		remote *corev1.Pod
	}
	// removed makes the provider remove the pod, after Liqo has stored its phase in the status of the ShadowPod.
	removed := func(policy corev1.RestartPolicy) func(*world) {
		return func(w *world) {
			w.shadow.Status.Phase, w.shadow.Spec.Pod.RestartPolicy, w.remote = w.remote.Status.Phase, policy, nil
		}
	}
	for name, tc := range map[string]struct {
		change  func(*world)
		reports bool
	}{
		"it has completed":                      {func(*world) {}, true},
		"it has failed":                         {func(w *world) { w.remote.Status.Phase = corev1.PodFailed }, true},
		"the API server accepts no such status": {func(w *world) { w.remote.Status.Message = refused }, false},
		"it was removed after that":             {removed(corev1.RestartPolicyNever), true},
		"it was removed, and would run again":   {removed(corev1.RestartPolicyAlways), false},
		"it runs":                               {func(w *world) { w.remote.Status.Phase = corev1.PodRunning }, false},
		"nothing of it is there":                {func(w *world) { w.remote = nil }, false},
		"it ends because it is deleted":         {func(w *world) { w.remote.DeletionTimestamp = &now }, false},
		"its ShadowPod is deleted":              {func(w *world) { w.shadow.DeletionTimestamp = &now }, false},
		"the ShadowPod does not say whose":      {func(w *world) { w.shadow.GenerateName = "" }, false},
		"the ShadowPod is an earlier pod's":     {func(w *world) { transform.HidePodUID(w.shadow, "earlier") }, false},
		"it left another VirtualNode":           {func(w *world) { w.local.Annotations[v1alpha1.MovingFromAnnotation] = "q1" }, false},
		"it left another provider's of the name": {
			func(w *world) { w.local.Annotations[v1alpha1.MovingFromProviderAnnotation] = "q" }, false,
		},
		"it is assigned again": {
			func(w *world) { w.local.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "q1"} }, false,
		},
		"it is deleted": {
			func(w *world) { w.local.DeletionTimestamp, w.local.Finalizers = &now, []string{"x"} }, false,
		},
		"it is gone":                            {func(w *world) { w.local.Name = "b" }, false},
		"it has been shown to have ended since": {func(w *world) { w.local.Status.Phase = corev1.PodFailed }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{leaving.DeepCopy(), shadow.DeepCopy(), there.DeepCopy()}
			tc.change(w)
			home, below := fake.NewClientset(w.local), &liqos{}
			remotes := fake.NewClientset()
			if w.remote != nil {
				require.NoError(t, remotes.Tracker().Add(w.remote))
			}
			cached := w.shadow.DeepCopy()
			cached.Status.Phase = "" // The cache lags.
			h := &handover{
				NamespacedReflector: below, forget: func(string) {},
				client: liqofake.NewSimpleClientset(w.shadow).OffloadingV1beta1().ShadowPods("ns-home"),
				local:  corev1listers.NewPodLister(indexed[*corev1.Pod](t)).Pods("ns"),
				// The cache lags behind the API server.
				remote: corev1listers.NewPodLister(indexed[*corev1.Pod](t)).Pods("ns-home"), remotePods: remotes.CoreV1().Pods("ns-home"),
				shadows:  offloadinglisters.NewShadowPodLister(indexed(t, cached)).ShadowPods("ns-home"),
				releases: (&Forwarder{View: View{VirtualNode: "p1-gpu", Provider: "p1"}, Pods: home.CoreV1().Pods}).releasesOf("ns"),
			}
			answer := errors.New("the API server is away")
			if w.remote != nil && w.remote.Status.Message == refused {
				answer = kerrors.NewRequestEntityTooLargeError("a")
			}
			home.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return answer != nil, nil, answer
			})
			err := h.Handle(t.Context(), "a")
			if tc.reports {
				require.ErrorIs(t, err, answer)
				require.Empty(t, below.handled, "the ShadowPod stays until it is written")
				answer = nil
				require.NoError(t, h.Handle(t.Context(), "a"))
			}
			require.Equal(t, []string{"a"}, below.handled)
			pod, err := home.CoreV1().Pods("ns").Get(t.Context(), w.local.Name, metav1.GetOptions{})
			require.NoError(t, err)
			if !tc.reports {
				require.Equal(t, w.local.Status, pod.Status)
				return
			}
			if w.remote == nil {
				require.Equal(t, w.shadow.Status.Phase, pod.Status.Phase)
				return
			}
			require.Equal(t, w.remote.Status.Phase, pod.Status.Phase)
			require.Equal(t, w.remote.Status.ContainerStatuses, pod.Status.ContainerStatuses)
			require.Len(t, pod.Status.Conditions, 2)
		})
	}
}

// returning is a pod that is moved away, and is assigned to the same VirtualNode again.
type returning struct {
	*handover
	pod             *corev1.Pod
	locals, shadows cache.Indexer
	liqo            *liqos
	// provider stores the ShadowPods, and remotes the pods.
	provider *liqofake.Clientset
	remotes  *fake.Clientset
}

// newReturning returns a returning pod whose ShadowPod is in the cache. there means that the ShadowPod still exists.
func newReturning(t *testing.T, first *offloadingv1beta1.ShadowPod, there bool) *returning {
	t.Helper()
	actAsLiqo()
	r := &returning{
		pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}},
		locals: indexed[*corev1.Pod](t), shadows: indexed(t, first), liqo: &liqos{},
		provider: liqofake.NewSimpleClientset(), remotes: fake.NewClientset(),
	}
	if there {
		require.NoError(t, r.provider.Tracker().Add(first))
	}
	r.handover = &handover{
		NamespacedReflector: r.liqo, forget: func(string) {},
		local:  corev1listers.NewPodLister(r.locals).Pods("ns"),
		remote: corev1listers.NewPodLister(indexed[*corev1.Pod](t)).Pods("ns-home"), remotePods: r.remotes.CoreV1().Pods("ns-home"),
		shadows: offloadinglisters.NewShadowPodLister(r.shadows).ShadowPods("ns-home"),
		client:  r.provider.OffloadingV1beta1().ShadowPods("ns-home"),
		releases: (&Forwarder{
			View: View{VirtualNode: "p1-gpu", Provider: "p1"}, Pods: fake.NewClientset(r.pod).CoreV1().Pods,
		}).releasesOf("ns"),
	}
	return r
}

// shadowOf returns a ShadowPod of the pod above.
func shadowOf(uid types.UID) *offloadingv1beta1.ShadowPod {
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns-home", Name: "a", UID: uid,
		Labels: labels.Merge(forge.ReflectionLabels(), labels.Set{forge.LiqoOriginClusterNodeName: "p1-gpu"}),
	}}
	transform.HidePodUID(shadow, "uid")
	return shadow
}

// A pod is moved away, its ShadowPod is deleted, and the pod is assigned to the same VirtualNode again before the
// caches of the provider show the deletion: they may lag by any time.
func TestAPodThatComesBackIsNotTakenForTheOneThatLeft(t *testing.T) {
	actAsLiqo()
	first := shadowOf("first")
	for name, tc := range map[string]struct {
		// failed is the error of the deletion. shown is the ShadowPod in the cache when the pod is assigned again.
		failed error
		shown  *offloadingv1beta1.ShadowPod
		waits  bool
	}{
		"the cache shows it still":          {nil, first, true},
		"its deletion failed":               {errors.New("no answer"), first, true},
		"it is gone":                        {nil, nil, false},
		"another process made a second one": {nil, shadowOf("second"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReturning(t, first, tc.failed != nil)
			r.liqo.err = tc.failed
			require.ErrorIs(t, r.Handle(t.Context(), "a"), tc.failed)
			require.Len(t, r.liqo.handled, 1, "Liqo deletes what the pod that left had")

			r.liqo.err = nil
			require.NoError(t, r.locals.Add(r.pod))
			require.NoError(t, r.shadows.Delete(first))
			if tc.shown != nil {
				require.NoError(t, r.shadows.Add(tc.shown))
			}
			err := r.Handle(t.Context(), "a")
			if tc.waits {
				require.ErrorIs(t, err, errPreviousExists)
				require.Len(t, r.liqo.handled, 1)
				_, err = r.client.Get(t.Context(), "a", metav1.GetOptions{})
				require.True(t, kerrors.IsNotFound(err), "it is deleted, whatever became of the first attempt")
				require.NoError(t, r.shadows.Delete(first))
				err = r.Handle(t.Context(), "a")
			}
			require.NoError(t, err)
			require.Len(t, r.liqo.handled, 2)
			require.Empty(t, r.releases.removed, "nothing is remembered for good")
		})
	}
	t.Run("it does not come back", func(t *testing.T) {
		r := newReturning(t, first, false)
		require.NoError(t, r.Handle(t.Context(), "a"))
		require.NotEmpty(t, r.releases.removed)
		require.NoError(t, r.shadows.Delete(first))
		require.NoError(t, r.Handle(t.Context(), "a"))
		require.Empty(t, r.releases.removed)
	})
}

// Before a ShadowPod is deleted, its provider is asked for the pod, which may take long. Liqo reads the caches after
// that.
func TestAPodThatComesBackWhileItsProviderIsAskedIsHandledAnew(t *testing.T) {
	r := newReturning(t, shadowOf("first"), true)
	r.remotes.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return false, nil, r.locals.Add(r.pod)
	})
	require.ErrorIs(t, r.Handle(t.Context(), "a"), errPreviousExists)
	require.Empty(t, r.liqo.handled)
	require.Empty(t, r.releases.removed)
	require.NoError(t, r.Handle(t.Context(), "a"))
	require.Len(t, r.liqo.handled, 1, "nothing was deleted, and the pod goes on where it was")
}

func TestHandover(t *testing.T) {
	actAsLiqo()
	now := metav1.Now()
	madeBy := func(node string) map[string]string {
		return labels.Merge(forge.ReflectionLabels(), labels.Set{forge.LiqoOriginClusterNodeName: node})
	}
	shadow := func(labels map[string]string) *offloadingv1beta1.ShadowPod {
		return &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "a", Labels: labels}}
	}
	remote := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "a", Labels: labels}}
	}
	ofPod := func(uid types.UID, shadow *offloadingv1beta1.ShadowPod) *offloadingv1beta1.ShadowPod {
		shadow = shadow.DeepCopy()
		transform.HidePodUID(shadow, uid)
		return shadow
	}
	assigned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}}
	deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", DeletionTimestamp: &now}}
	done := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
	}
	going := shadow(madeBy("p1-gpu"))
	going.DeletionTimestamp = &now
	second := shadow(madeBy("p1-gpu"))
	second.UID = "second"
	of := func(owner types.UID) *corev1.Pod {
		pod := remote(madeBy("p1-gpu"))
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ShadowPod", UID: owner, Controller: ptr.To(true)}}
		return pod
	}

	const liqo, waits, deletes, nothing = "Liqo handles it", "it waits", "it waits, and the ShadowPod is deleted", "nothing happens"
	for name, tc := range map[string]struct {
		local   *corev1.Pod
		shadow  *offloadingv1beta1.ShadowPod
		remote  *corev1.Pod
		want    string
		forgets bool
	}{
		"a pod comes to an empty place":                       {assigned, nil, nil, liqo, false},
		"a pod runs":                                          {assigned, shadow(madeBy("p1-gpu")), remote(madeBy("p1-gpu")), liqo, false},
		"a pod comes from another slice of the provider":      {assigned, shadow(madeBy("p1-cpu")), remote(madeBy("p1-cpu")), waits, false},
		"its ShadowPod there is gone, its pod is not yet":     {assigned, nil, remote(madeBy("p1-cpu")), waits, false},
		"a pod comes back while its last stay is ending":      {assigned, nil, remote(madeBy("p1-gpu")), waits, false},
		"a pod comes back while its ShadowPod is going":       {assigned, going, remote(madeBy("p1-gpu")), waits, false},
		"a pod runs, and is that of its ShadowPod":            {assigned, second, of("second"), liqo, false},
		"the pod there is still that of an earlier ShadowPod": {assigned, second, of("first"), waits, false},
		"an earlier pod had the name": {
			assigned, ofPod("earlier", shadow(madeBy("p1-gpu"))), remote(madeBy("p1-gpu")), deletes, false,
		},
		"an earlier pod had the name, and is ending": {assigned, ofPod("earlier", going), remote(madeBy("p1-gpu")), waits, false},
		"an earlier pod had the name, at another slice": {
			assigned, ofPod("earlier", shadow(madeBy("p1-cpu"))), remote(madeBy("p1-cpu")), waits, false,
		},
		"a pod runs, and its ShadowPod says whose it is": {
			assigned, ofPod("uid", shadow(madeBy("p1-gpu"))), remote(madeBy("p1-gpu")), liqo, false,
		},
		"a pod's name is taken by a stranger's ShadowPod": {assigned, shadow(nil), nil, liqo, false},
		"a pod's name is taken by a stranger's pod":       {assigned, nil, remote(nil), liqo, false},
		"a pod has left": {nil, shadow(madeBy("p1-gpu")), remote(madeBy("p1-gpu")), liqo, true},
		"a pod has left for another slice of the provider":   {nil, shadow(madeBy("p1-cpu")), remote(madeBy("p1-cpu")), nothing, true},
		"a pod and what was made of it are gone":             {nil, nil, nil, liqo, true},
		"a pod is deleted on its way to another slice":       {deleted, shadow(madeBy("p1-cpu")), remote(madeBy("p1-cpu")), liqo, false},
		"a pod is done, and its ShadowPod another's already": {done, shadow(madeBy("p1-cpu")), nil, liqo, false},
	} {
		t.Run(name, func(t *testing.T) {
			locals, remotes, shadows := indexed[*corev1.Pod](t), indexed[*corev1.Pod](t), indexed[*offloadingv1beta1.ShadowPod](t)
			if tc.local != nil {
				require.NoError(t, locals.Add(tc.local))
			}
			if tc.remote != nil {
				require.NoError(t, remotes.Add(tc.remote))
			}
			if tc.shadow != nil {
				require.NoError(t, shadows.Add(tc.shadow))
			}
			below, forgotten := &liqos{err: errors.New("Liqo's")}, false
			provider := liqofake.NewSimpleClientset()
			if tc.shadow != nil {
				require.NoError(t, provider.Tracker().Add(tc.shadow))
			}
			err := (&handover{
				NamespacedReflector: below,
				local:               corev1listers.NewPodLister(locals).Pods("ns"),
				remote:              corev1listers.NewPodLister(remotes).Pods("ns-home"),
				shadows:             offloadinglisters.NewShadowPodLister(shadows).ShadowPods("ns-home"),
				client:              provider.OffloadingV1beta1().ShadowPods("ns-home"),
				forget:              func(string) { forgotten = true },
				releases:            (&Forwarder{Pods: fake.NewClientset().CoreV1().Pods}).releasesOf("ns"),
			}).Handle(t.Context(), "a")

			require.Equal(t, tc.forgets, forgotten)
			switch tc.want {
			case liqo:
				require.ErrorIs(t, err, below.err)
				require.Equal(t, []string{"a"}, below.handled)
			case waits, deletes:
				require.ErrorIs(t, err, errPreviousExists)
				require.Empty(t, below.handled)
				_, err := provider.OffloadingV1beta1().ShadowPods("ns-home").Get(t.Context(), "a", metav1.GetOptions{})
				require.Equal(t, tc.want == deletes || tc.shadow == nil, kerrors.IsNotFound(err))
			default:
				require.NoError(t, err)
				require.Empty(t, below.handled)
			}
		})
	}
}
