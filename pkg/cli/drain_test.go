package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// drainBegins drains p1, of which the broker has taken notice, and waits for it.
func drainBegins(t *testing.T, s *Session, o DrainOptions, providers ...string) (end func() error) {
	o.Node, o.Wait = "broker", true
	return begin(t, func(ctx context.Context) error { return s.Drain(ctx, providers, o) })
}

// changeProvider changes a provider as the broker or somebody else does.
func (s *Session) changeProvider(t *testing.T, id string, how func(*v1alpha1.ProviderCluster)) {
	t.Helper()
	var pc v1alpha1.ProviderCluster
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Name: id}, &pc))
	how(&pc)
	s.write(t, &pc)
}

func TestDrainShowsThePodsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := placed("done", "p1")
		done.Status.Phase = corev1.PodSucceeded
		left := placed("left", "p1")
		leave(left, "p1")
		s, screen := at(t, interceptor.Funcs{}, provider("p1"), provider("p2"), provider("p3"), done, left,
			placed("a", "p1"), placed("b", "p1"), placed("c", "p2"), placed("other", "p3"), placed("waits", ""))
		end := drainBegins(t, s, DrainOptions{}, "p1", "p2")
		require.Equal(t, []string{
			"providercluster.brokering.liqo.io/p1 draining", "providercluster.brokering.liqo.io/p2 draining",
			"p1 has 3 pods (ns/a, ns/b, ns/left)", "p2 has 1 pod (ns/c)",
		}, screen.lines())

		s.changePod(t, "left", func(pod *corev1.Pod) { place(pod, "p3") })
		s.changePod(t, "a", func(pod *corev1.Pod) { leave(pod, "p1") })
		s.changePod(t, "a", func(pod *corev1.Pod) { delete(pod.Annotations, v1alpha1.MovingFromAnnotation) })
		s.changePod(t, "c", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		s.changePod(t, "waits", func(pod *corev1.Pod) { place(pod, "p3") })
		synctest.Wait()
		require.Equal(t, []string{
			"pod ns/left moved to p3", "pod ns/a leaves p1", "pod ns/a has left p1 and waits", "pod ns/c has ended",
		}, screen.lines())

		require.NoError(t, s.Client.Delete(t.Context(), placed("b", "")))
		synctest.Wait()
		require.Equal(t, []string{
			"pod ns/b is gone",
			"providercluster.brokering.liqo.io/p1 drained", "providercluster.brokering.liqo.io/p2 drained",
			"warning: 1 of the pods that left wait for another provider: get placements -A -o wide says why",
		}, screen.lines())
		require.NoError(t, end())
	})
}

func TestDrainWaitsForTheBrokerToTakeNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The fake API does not count generations.
		p1 := provider("p1")
		p1.Generation, p1.Status.ObservedGeneration = 2, 1
		s, screen := at(t, interceptor.Funcs{}, p1)
		end := drainBegins(t, s, DrainOptions{}, "p1")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"providercluster.brokering.liqo.io/p1 draining"}, screen.lines())

		s.changeProvider(t, "p1", func(pc *v1alpha1.ProviderCluster) { pc.Status.ObservedGeneration = 2 })
		synctest.Wait()
		require.Equal(t, []string{"providercluster.brokering.liqo.io/p1 drained"}, screen.lines())
		require.NoError(t, end())
	})
}

// A pod that is assigned at the moment when the broker takes notice is not overlooked, though the stream of pods is late.
func TestDrainLooksOnceMoreBeforeItSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		s, screen := at(t, interceptor.Funcs{
			List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, pods := list.(*corev1.PodList); pods {
					if lists++; lists == 2 {
						require.NoError(t, under.Create(ctx, placed("late", "p1")))
					}
				}
				return under.List(ctx, list, opts...)
			},
		}, provider("p1"))
		end := drainBegins(t, s, DrainOptions{}, "p1")
		require.Equal(t, []string{
			"providercluster.brokering.liqo.io/p1 draining", "pod ns/late is at p1",
		}, screen.lines())
		s.changePod(t, "late", func(pod *corev1.Pod) { place(pod, "p2") })
		synctest.Wait()
		require.Equal(t, []string{"pod ns/late moved to p2", "providercluster.brokering.liqo.io/p1 drained"}, screen.lines())
		require.NoError(t, end())
	})
}

func TestDrainThatDoesNotCome(t *testing.T) {
	unnoticed := provider("p2")
	unnoticed.Generation = 1
	for name, tc := range map[string]struct {
		timeout   time.Duration
		providers []string
		meanwhile func(*testing.T, *Session)
		says      []string
	}{
		"takes too long": {5 * time.Minute, []string{"p1", "p2"}, nil, []string{
			"error: not done after 5m0s (--timeout): p1 still has 7 pods (ns/a, ns/b, ns/c, ns/d, ns/e, …), " +
				"the broker has not taken notice of p2, which has no pods; draining goes on until somebody uncordons",
		}},
		"is interrupted": {0, []string{"p1"}, nil, []string{
			"error: interrupted: p1 still has 7 pods (ns/a, ns/b, ns/c, ns/d, ns/e, …); draining goes on until somebody uncordons",
		}},
		"is ended by somebody else": {0, []string{"p1"}, func(t *testing.T, s *Session) {
			require.NoError(t, s.Uncordon(t.Context(), []string{"p1"}))
		}, []string{"error: p1: somebody has ended the drain"}},
		"has lost its provider": {0, []string{"p1"}, func(t *testing.T, s *Session) {
			require.NoError(t, s.Client.Delete(t.Context(), provider("p1")))
		}, []string{"error: p1 was deleted meanwhile"}},
		"is for nobody": {0, []string{"p9"}, nil, []string{
			`Error from server (NotFound): providerclusters.brokering.liqo.io "p9" not found`,
		}},
		"is for nobody, too": {5 * time.Minute, []string{"p9", "p1"}, nil, []string{
			`Error from server (NotFound): providerclusters.brokering.liqo.io "p9" not found`,
			"error: not done after 5m0s (--timeout): p1 still has 7 pods (ns/a, ns/b, ns/c, ns/d, ns/e, …); " +
				"draining goes on until somebody uncordons",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []client.Object{provider("p1"), unnoticed}
				for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
					objects = append(objects, placed(name, "p1"))
				}
				s, _ := at(t, interceptor.Funcs{}, objects...)
				end := drainBegins(t, s, DrainOptions{Timeout: tc.timeout}, tc.providers...)
				if tc.meanwhile != nil {
					tc.meanwhile(t, s)
				}
				time.Sleep(tc.timeout)
				synctest.Wait()
				require.Equal(t, tc.says, Words(end()))
			})
		})
	}
}

func TestDrainNeedNotWait(t *testing.T) {
	s, screen := at(t, interceptor.Funcs{}, provider("p1"), placed("a", "p1"))
	require.NoError(t, s.Drain(t.Context(), []string{"p1"}, DrainOptions{Node: "broker"}))
	require.NoError(t, s.Drain(t.Context(), []string{"p1"}, DrainOptions{Node: "broker"}))
	require.Equal(t, []string{
		"providercluster.brokering.liqo.io/p1 draining", "providercluster.brokering.liqo.io/p1 already draining",
	}, screen.lines())
}
