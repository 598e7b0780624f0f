package view

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func fakeInformers(t *testing.T) *informertest.FakeInformers {
	known, err := scheme.New()
	require.NoError(t, err)
	return &informertest.FakeInformers{Scheme: known}
}

func informerOf(t *testing.T, from *informertest.FakeInformers, o client.Object) *controllertest.FakeInformer {
	informer, err := from.FakeInformerFor(t.Context(), o)
	require.NoError(t, err)
	return informer
}

func TestTheViewFollowsItsCache(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		from := fakeInformers(t)
		pods := informerOf(t, from, &corev1.Pod{})
		pods.Synced = false
		v := New(from, Config{Node: node, SampleEvery: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- v.Run(ctx) }()
		time.Sleep(time.Hour)
		require.False(t, v.Synced(), "its pods are not known yet")

		seen := time.Now().UTC()
		informerOf(t, from, &corev1.Namespace{}).Add(namespaceOf("team", "c1"))
		informerOf(t, from, &v1alpha1.ProviderCluster{}).Add(cluster("p1"))
		pods.Add(podIn("team", "x"))
		pods.SyncedLock.Lock()
		pods.Synced = true
		pods.SyncedLock.Unlock()
		time.Sleep(time.Second)
		require.True(t, v.Synced())
		list, err := v.Placements(PlacementQuery{Scope: Scope{Consumer: "c1"}})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)

		time.Sleep(2 * time.Minute)
		h, ok := v.History("p1")
		require.True(t, ok)
		require.Len(t, h.Samples, 3, "at once, and every minute")
		require.Equal(t, time.Minute, h.Samples[2].At.Sub(h.Samples[1].At))
		require.Equal(t, seen, h.Since)

		pods.Delete(podIn("team", "x"))
		list, err = v.Placements(PlacementQuery{Scope: Scope{All: true}})
		require.NoError(t, err)
		require.Empty(t, list.Items)
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestWhatCannotBeWatchedIsAnError(t *testing.T) {
	from := fakeInformers(t)
	from.Error = errors.New("no such kind")
	require.ErrorContains(t, New(from, Config{}).Run(t.Context()), "informer of *v1.Namespace: no such kind")
}

func TestTheViewEndsBeforeItIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := fakeInformers(t)
		informerOf(t, from, &corev1.Pod{}).Synced = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		v := New(from, Config{})
		require.NoError(t, v.Run(ctx))
		require.False(t, v.Synced())
	})
}

func TestTheCacheKeepsNoSecretsOfPods(t *testing.T) {
	options := CacheOptions(node)
	require.True(t, options.ReaderFailOnMissingInformer, "a read must not fill the cache with all Secrets")
	always := corev1.ContainerRestartPolicyAlways
	full := func() *corev1.Pod {
		container := corev1.Container{
			Name: "c", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}, Args: []string{"--password=secret"},
			Resources: corev1.ResourceRequirements{Requests: cpus("1")},
		}
		sidecar := container
		sidecar.RestartPolicy = &always
		return podIn("team", "x", func(p *corev1.Pod) {
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "secret", v1alpha1.FilterAnnotation: "true"}
			p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{container}, []corev1.Container{container, sidecar}
			p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
			p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
		})
	}
	seen := 0
	for object, by := range options.ByObject {
		if _, isPod := object.(*corev1.Pod); !isPod {
			continue
		}
		seen++
		require.Equal(t, "spec.nodeName="+node, by.Field.String())
		out, err := by.Transform(full())
		require.NoError(t, err)
		pod := out.(*corev1.Pod)
		text, err := pod.Marshal()
		require.NoError(t, err)
		require.NotContains(t, string(text), "secret")
		require.Empty(t, pod.ManagedFields)
		require.Equal(t, map[string]string{v1alpha1.FilterAnnotation: "true"}, pod.Annotations)
		require.Equal(t, resources.PodRequests(&full().Spec), resources.PodRequests(&pod.Spec), "explanations need them")
		require.Equal(t, node, pod.Spec.NodeName)
	}
	require.Equal(t, 1, seen)
	pc := cluster("p1")
	pc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	out, err := options.DefaultTransform(pc)
	require.NoError(t, err)
	require.Equal(t, cluster("p1"), out)
}
