package transform

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestEveryReadOfAListerIsShown(t *testing.T) {
	plain := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	factory := Factory{SharedInformerFactory: plain, Pods: Show(func(pod *corev1.Pod) *corev1.Pod {
		shown := *pod
		shown.Spec.NodeName = "shown"
		return &shown
	})}
	informer := plain.Core().V1().Pods().Informer()
	for _, namespace := range []string{"a", "b"} {
		require.NoError(t, informer.GetIndexer().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "p", Labels: map[string]string{"in": namespace},
		}}))
	}
	require.Same(t, informer, factory.Core().V1().Pods().Informer())
	lister := factory.Core().V1().Pods().Lister()

	pod, err := lister.Pods("a").Get("p")
	require.NoError(t, err)
	require.Equal(t, "shown", pod.Spec.NodeName)
	inNamespace, err := lister.Pods("b").List(labels.Everything())
	require.NoError(t, err)
	require.Len(t, inNamespace, 1)
	require.Equal(t, "shown", inNamespace[0].Spec.NodeName)
	selected, err := lister.List(labels.SelectorFromSet(labels.Set{"in": "b"}))
	require.NoError(t, err)
	require.Equal(t, inNamespace, selected)

	absent, err := lister.Pods("a").Get("q")
	require.True(t, kerrors.IsNotFound(err))
	require.Nil(t, absent, "Liqo recognises an absent pod by the pointer")

	cached, err := plain.Core().V1().Pods().Lister().Pods("a").Get("p")
	require.NoError(t, err)
	require.Empty(t, cached.Spec.NodeName, "the object in the cache stays as it is")
	nodes, err := factory.Core().V1().Nodes().Lister().List(labels.Everything())
	require.NoError(t, err)
	require.Empty(t, nodes, "without a lens the lister is the informer's")

	twice := Pods(factory.Core().V1().Pods(), Show(func(pod *corev1.Pod) *corev1.Pod {
		shown := *pod
		shown.Spec.NodeName += " twice"
		return &shown
	}))
	pod, err = twice.Lister().Pods("a").Get("p")
	require.NoError(t, err)
	require.Equal(t, "shown twice", pod.Spec.NodeName, "the lens is in front of the other one")
}
