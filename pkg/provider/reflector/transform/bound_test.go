package transform

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	liqoinformers "github.com/liqotech/liqo/pkg/client/informers/externalversions"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

func TestTheStatusOfARemotePodIsTrimmed(t *testing.T) {
	pod := &corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: "node", HostNetwork: true},
		Status: corev1.PodStatus{Phase: "Nonsense", Reason: "a\x1bb"},
	}
	got, err := TrimRemotePod(pod)
	require.NoError(t, err)
	require.Equal(t, corev1.PodUnknown, got.(*corev1.Pod).Status.Phase)
	require.Equal(t, corev1.PodSpec{HostNetwork: true}, got.(*corev1.Pod).Spec)
	require.Equal(t, corev1.PodPhase("Nonsense"), pod.Status.Phase, "the original stays as it is")
	require.Equal(t, "node", pod.Spec.NodeName)
}

func TestTheTextsOfARemoteEventAreCut(t *testing.T) {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, 1)},
		Message:    strings.Repeat("x", 1<<20), Reason: strings.Repeat("x", 1<<20),
	}
	got, err := boundEvent(event)
	require.NoError(t, err)
	require.Len(t, got.(*corev1.Event).Message, untrusted.MaxText)
	require.Len(t, got.(*corev1.Event).Reason, 128)
	require.Empty(t, got.(*corev1.Event).ManagedFields)
	require.Len(t, event.Message, 1<<20)
	require.Len(t, event.ManagedFields, 1)

	got, err = boundEvent(&corev1.Event{Message: "a\nb\u202ec"})
	require.NoError(t, err)
	require.Equal(t, "a b c", got.(*corev1.Event).Message)
}

func TestTheCachesOfEventsAndPodsAreTrimmed(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid", ManagedFields: make([]metav1.ManagedFieldsEntry, 1)}
	factory := func() informers.SharedInformerFactory {
		return informers.NewSharedInformerFactory(fake.NewClientset(
			&corev1.Event{ObjectMeta: meta, Message: "message"},
			&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node", RestartPolicy: corev1.RestartPolicyNever}},
		), 0)
	}
	opts := &options.NamespacedOpts{
		LocalClient: fake.NewClientset(), LocalFactory: factory(), RemoteFactory: factory(),
		RemoteLiqoFactory: liqoinformers.NewSharedInformerFactory(
			liqofake.NewSimpleClientset(&offloadingv1beta1.ShadowPod{ObjectMeta: meta}), 0),
	}
	none := func(*options.NamespacedOpts) manager.NamespacedReflector { return nil }
	Events(none)(opts)
	Trimmed(none)(opts)
	opts.LocalFactory.Start(t.Context().Done())
	opts.RemoteFactory.Start(t.Context().Done())
	opts.RemoteLiqoFactory.Start(t.Context().Done())
	opts.LocalFactory.WaitForCacheSync(t.Context().Done())
	opts.RemoteFactory.WaitForCacheSync(t.Context().Done())
	opts.RemoteLiqoFactory.WaitForCacheSync(t.Context().Done())

	want := metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}
	event, err := opts.LocalFactory.Core().V1().Events().Lister().Events("ns").Get("a")
	require.NoError(t, err)
	require.Equal(t, &corev1.Event{ObjectMeta: want}, event)
	event, err = opts.RemoteFactory.Core().V1().Events().Lister().Events("ns").Get("a")
	require.NoError(t, err)
	require.Equal(t, &corev1.Event{ObjectMeta: want, Message: "message"}, event)
	pod, err := opts.LocalFactory.Core().V1().Pods().Lister().Pods("ns").Get("a")
	require.NoError(t, err)
	require.Equal(t, &corev1.Pod{ObjectMeta: want, Spec: corev1.PodSpec{NodeName: "node"}}, pod)
	pod, err = opts.RemoteFactory.Core().V1().Pods().Lister().Pods("ns").Get("a")
	require.NoError(t, err)
	require.Equal(t, want, pod.ObjectMeta)
	require.Empty(t, pod.Spec)
	shadow, err := opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods("ns").Get("a")
	require.NoError(t, err)
	require.Equal(t, want, shadow.ObjectMeta)
}
