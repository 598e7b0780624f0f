package brokernode

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"
)

// answering is a kubelet API that finds every pod.
type answering struct{ workload.PodHandler }

func (answering) Exec(context.Context, string, string, string, []string, api.AttachIO) error {
	return nil
}
func (answering) Attach(context.Context, string, string, string, api.AttachIO) error { return nil }
func (answering) PortForward(context.Context, string, string, int32, io.ReadWriteCloser) error {
	return nil
}

func (answering) Logs(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
	return io.NopCloser(nil), nil
}

func TestOnlyOwnPodsAreAnsweredFor(t *testing.T) {
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own"}}
	pods := testView().OwnPods(answering{}, corev1listers.NewPodLister(indexed(t, own)))
	for name, ask := range map[string]func(pod string) error{
		"exec":         func(pod string) error { return pods.Exec(t.Context(), "ns", pod, "c", nil, nil) },
		"attach":       func(pod string) error { return pods.Attach(t.Context(), "ns", pod, "c", nil) },
		"port-forward": func(pod string) error { return pods.PortForward(t.Context(), "ns", pod, 80, nil) },
		"logs": func(pod string) error {
			_, err := pods.Logs(t.Context(), "ns", pod, "c", api.ContainerLogOpts{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, ask("own"))
			err := ask("other")
			require.True(t, errdefs.IsNotFound(err), "virtual-kubelet makes a 404 of it")
			require.ErrorContains(t, err, "pod ns/other is not assigned to VirtualNode p1-gpu of p1; ask the node liqo-broker")
		})
	}
}

func TestPodsOfAnUnreachableProviderAreNotReady(t *testing.T) {
	since := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	started := metav1.NewTime(since.Add(-time.Hour))
	remote := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: started},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started},
	}}}
	before := remote.DeepCopy()
	marked := func(value string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"brokering.liqo.io/unreachable-since": value}}}
	}
	require.Same(t, remote, ShowUnreachable(&corev1.Pod{}, remote))

	for value, at := range map[string]metav1.Time{since.Format(time.RFC3339Nano): metav1.NewTime(since), "lately": started} {
		shown := ShowUnreachable(marked(value), remote)
		require.Equal(t, []corev1.PodCondition{
			before.Status.Conditions[0],
			{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ProviderUnreachable", LastTransitionTime: at,
				Message: "the provider cluster cannot be reached",
			},
		}, shown.Status.Conditions)
		require.Equal(t, shown, ShowUnreachable(marked(value), remote), "every look shows the same")
	}
	require.Equal(t, before, remote, "the cache is left alone")

	remote.Status.Conditions[1].Status = corev1.ConditionFalse
	require.Equal(t, remote, ShowUnreachable(marked(since.Format(time.RFC3339)), remote), "what is not Ready stays as it is")
}

// starting is a reflector that records its start options.
type starting struct {
	manager.Reflector
	opts *options.ReflectorOpts
}

func (s *starting) Start(_ context.Context, opts *options.ReflectorOpts) { s.opts = opts }

func TestServiceAccountTokensAreOfOwnNode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: corev1.PodSpec{NodeName: "liqo-broker"}}
	below := &starting{}
	informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Pods()
	require.NoError(t, informer.Informer().GetIndexer().Add(pod))
	testView().OnOwnNode(below).Start(t.Context(), &options.ReflectorOpts{LocalPodInformer: informer})
	shown, err := below.opts.LocalPodInformer.Lister().Pods("ns").Get("a")
	require.NoError(t, err)
	require.Equal(t, "p1-gpu", shown.Spec.NodeName)
	require.Equal(t, "liqo-broker", pod.Spec.NodeName)
	_, err = below.opts.LocalPodInformer.Lister().Pods("ns").Get("b")
	require.Error(t, err)
}
