package informers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
)

// informer fails to add or to remove handlers.
type informer struct {
	controllertest.FakeInformer

	add, remove error
}

func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	if i.add != nil {
		return nil, i.add
	}
	return i.FakeInformer.AddEventHandler(h)
}

func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return i.remove
}

func cacheOf(pods *informer) *informertest.FakeInformers {
	pods.Synced = true
	return &informertest.FakeInformers{InformersByGVK: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
		corev1.SchemeGroupVersion.WithKind("Pod"): pods,
	}}
}

func TestChangesAndDeletionsAreReportedUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := map[string]string{}
		pods := &informer{}
		ctx, cancel := context.WithCancel(t.Context())
		synced, ended := false, make(chan error, 1)
		go func() {
			ended <- Run(ctx, cacheOf(pods), []Source{Objects(&corev1.Pod{},
				func(pod *corev1.Pod) { there[pod.Name] = pod.Labels["is"] },
				func(name types.NamespacedName) { delete(there, name.Name) },
			)}, func() { synced = true })
		}()
		synctest.Wait()
		pod := func(name, is string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"is": is}}}
		}
		pods.Add(pod("a", "new"))
		pods.Add(pod("b", "new"))
		pods.Add(pod("c", "new"))
		pods.Update(pod("a", "new"), pod("a", "changed"))
		pods.Delete(pod("b", "new"))
		require.Equal(t, map[string]string{"a": "changed", "c": "new"}, there)
		cancel()
		require.NoError(t, <-ended)
		require.True(t, synced)
	})
}

func TestWhatGoesWrongIsSaidUnlessItIsTheEnd(t *testing.T) {
	stopped := errors.New("it has stopped already")
	for name, tc := range map[string]struct {
		add, remove error
		ended       bool
		want        string
	}{
		"the cache cannot watch them":               {add: stopped, want: "informer of *v1.Pod: it has stopped already"},
		"the cache has stopped, for all is to stop": {add: stopped, ended: true},
		"a handler stays":                           {remove: errors.New("it is not mine"), ended: true, want: "it is not mine"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.ended {
				cancel()
			}
			none := Objects(&corev1.Pod{}, func(*corev1.Pod) {}, func(types.NamespacedName) {})
			err := Run(ctx, cacheOf(&informer{add: tc.add, remove: tc.remove}), []Source{none}, func() {})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
}
