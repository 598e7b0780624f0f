package cli

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// begin runs a command until the person presses Ctrl-C, or it ends by itself; end does so and returns its error.
func begin(t *testing.T, do func(context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-done
	}
}

func TestAWatchShowsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, screen := at(t, interceptor.Funcs{}, consumers("ns", "c1"), placed("a", "p1"), placed("b", ""))
		end := begin(t, func(ctx context.Context) error {
			return s.GetPlacements(ctx, Query{Node: "broker", Watch: true})
		})
		require.Equal(t, []string{
			"NAME READY STATUS CONSUMER PROVIDER SCORE SINCE AGE",
			"a 0/1 Running c1 p1 80 <unknown> <unknown>",
			"b 0/1 Waiting c1 <none> <none> <none> <unknown>",
		}, screen.lines())

		s.changePod(t, "a", func(pod *corev1.Pod) { pod.Labels["unseen"] = "by any column" })
		s.changePod(t, "a", func(pod *corev1.Pod) { leave(pod, "p1") })
		synctest.Wait()
		require.Equal(t, []string{"a 0/1 Moving c1 <none> <none> <none> <unknown>"}, screen.lines())

		s.changePod(t, "b", func(pod *corev1.Pod) { place(pod, "p2") })
		require.NoError(t, s.Client.Create(t.Context(), placed("c", "p2")))
		elsewhere := placed("d", "")
		elsewhere.Spec.NodeName = "another"
		require.NoError(t, s.Client.Create(t.Context(), elsewhere))
		require.NoError(t, s.Client.Delete(t.Context(), placed("b", "")))
		synctest.Wait()
		require.Equal(t, []string{
			"b 0/1 Pending c1 p2 80 <unknown> <unknown>",
			"b 0/1 Running c1 p2 80 <unknown> <unknown>",
			"c 0/1 Running c1 p2 80 <unknown> <unknown>",
			"b 0/1 Gone c1 p2 80 <unknown> <unknown>",
		}, screen.lines())
		require.NoError(t, end())
	})
}

func TestTimeThatPassesIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		young := placed("a", "p1")
		young.CreationTimestamp = metav1.Now()
		young.Annotations[v1alpha1.AssignedAtAnnotation] = time.Now().Format(time.RFC3339Nano)
		s, screen := at(t, interceptor.Funcs{}, consumers("ns", "c1"), young)
		end := begin(t, func(ctx context.Context) error {
			return s.GetPlacements(ctx, Query{Node: "broker", Watch: true, NoHeaders: true})
		})
		require.Equal(t, []string{"a 0/1 Running c1 p1 80 0s 0s"}, screen.lines())
		time.Sleep(time.Hour)
		s.changePod(t, "a", func(pod *corev1.Pod) { pod.Labels["unseen"] = "by any column" })
		synctest.Wait()
		require.Empty(t, screen.lines())
		s.changePod(t, "a", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
		synctest.Wait()
		require.Equal(t, []string{"a 0/1 Succeeded c1 p1 80 60m 60m"}, screen.lines())
		require.NoError(t, end())
	})
}

func TestAWatchOfAProviderEndsForPodsThatLeaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, screen := at(t, interceptor.Funcs{}, consumers("ns", "c1"), placed("a", "p1"), placed("b", "p2"))
		end := begin(t, func(ctx context.Context) error {
			return s.GetPlacements(ctx, Query{Node: "broker", Provider: "p1", Watch: true, NoHeaders: true})
		})
		require.Equal(t, []string{"a 0/1 Running c1 p1 80 <unknown> <unknown>"}, screen.lines())
		s.changePod(t, "a", func(pod *corev1.Pod) { leave(pod, "p1") })
		synctest.Wait()
		require.Equal(t, []string{"a 0/1 Gone c1 <none> <none> <none> <unknown>"}, screen.lines())
		require.NoError(t, end())
	})
}

func TestAWatchInJSONPrintsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, screen := at(t, interceptor.Funcs{}, provider("p1"))
		end := begin(t, func(ctx context.Context) error {
			return s.GetProviders(ctx, Query{Output: OutputName, Watch: true})
		})
		require.NoError(t, s.Client.Create(t.Context(), provider("p2")))
		synctest.Wait()
		require.Equal(t, []string{
			"providercluster.brokering.liqo.io/p1", "providercluster.brokering.liqo.io/p2",
		}, screen.lines())
		require.NoError(t, end())
	})
}

// Whatever happens while the connection is lost is shown once it is there again, and nothing twice.
func TestAWatchIsTakenUpAgain(t *testing.T) {
	for name, lose := range map[string]func(watch.Interface){
		"the stream ends": func(w watch.Interface) { w.Stop() },
		"the API server has forgotten where it was": func(w watch.Interface) {
			w.(*watch.RaceFreeFakeWatcher).Error(&metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				var tries atomic.Int32
				var last watch.Interface
				s, screen := at(t, interceptor.Funcs{
					List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						if tries.Add(1); down.Load() {
							return errors.New("connection refused")
						}
						return under.List(ctx, list, opts...)
					},
					Watch: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
						if down.Load() {
							return nil, errors.New("connection refused")
						}
						var err error
						last, err = under.Watch(ctx, list, opts...)
						return last, err
					},
				}, provider("p1"), provider("p2"))
				end := begin(t, func(ctx context.Context) error { return s.GetProviders(ctx, Query{Watch: true, Output: OutputName}) })
				require.Len(t, screen.lines(), 2)

				down.Store(true)
				tries.Store(0)
				lose(last)
				require.NoError(t, s.Client.Delete(t.Context(), provider("p1")))
				require.NoError(t, s.Client.Create(t.Context(), provider("p3")))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				require.Greater(t, int(tries.Load()), 5)
				require.Less(t, int(tries.Load()), 60, "tries become rarer")
				for _, line := range screen.lines() {
					require.Contains(t, line, "warning: ")
					require.Contains(t, line, "connection refused")
				}

				down.Store(false)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Equal(t, []string{
					"providercluster.brokering.liqo.io/p3", "providercluster.brokering.liqo.io/p1",
				}, screen.lines())
				require.NoError(t, end())
			})
		})
	}
}

// A person who has just changed something must not be shown what was before.
func TestAWatchBeginsWithWhatIsThereNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var versions []string
		s, _ := at(t, interceptor.Funcs{
			List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				versions = append(versions, (&client.ListOptions{}).ApplyOptions(opts).AsListOptions().ResourceVersion)
				return under.List(ctx, list, opts...)
			},
		}, provider("p1"))
		end := begin(t, func(ctx context.Context) error { return s.GetProviders(ctx, Query{Watch: true}) })
		require.NoError(t, end())
		require.Equal(t, []string{"", ""}, versions)
	})
}

func TestAWatchThatIsRefusedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := at(t, interceptor.Funcs{
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				return nil, kerrors.NewForbidden(schema.GroupResource{Resource: "providerclusters"}, "", errors.New("no right to watch"))
			},
		}, provider("p1"))
		err := s.GetProviders(t.Context(), Query{Watch: true})
		require.True(t, kerrors.IsForbidden(err), err)
	})
}

func TestAWatchWhoseOutputBreaksEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := at(t, interceptor.Funcs{}, provider("p1"))
		closed := errors.New("nobody reads any more")
		s.Out = writer(func([]byte) (int, error) { return 0, closed })
		require.ErrorIs(t, s.GetProviders(t.Context(), Query{Watch: true}), closed)

		printed := 0
		s.Out = writer(func(b []byte) (int, error) {
			if printed++; printed > 1 {
				return 0, closed
			}
			return len(b), nil
		})
		done := make(chan error, 1)
		go func() { done <- s.GetProviders(t.Context(), Query{Watch: true}) }()
		synctest.Wait()
		require.NoError(t, s.Client.Create(t.Context(), provider("p2")))
		require.ErrorIs(t, <-done, closed)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
