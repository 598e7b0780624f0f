package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// watching is a watch of several clusters that collects faults.
type watching struct {
	stop    context.CancelFunc
	streams sync.WaitGroup

	mu     sync.Mutex
	faults []string // Guarded by mu.
	events int      // Guarded by mu.
}

// end ends the watch, and fails the test if there are faults.
func (w *watching) end(t *testing.T) {
	t.Helper()
	w.stop()
	w.streams.Wait()
	assert.NotZero(t, w.events, "the watch has seen nothing")
	assert.Empty(t, w.faults)
}

func (w *watching) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// follow calls do for every object of a kind in a namespace of a cluster ("" means all namespaces), and for every later
// event, one after the other with w.mu locked. If the API server ends the watch, as it does for slow watchers, follow
// resumes it, so no event is missed.
func (w *watching) follow(ctx context.Context, t *testing.T, c *sandbox.Cluster, list client.ObjectList, namespace string,
	do func(apiwatch.EventType, client.Object),
) {
	t.Helper()
	watcher, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()})
	require.NoError(t, err)
	require.NoError(t, watcher.List(ctx, list, client.InNamespace(namespace)))
	w.mu.Lock()
	require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
		do(apiwatch.Added, o.(client.Object)) // All items of these lists are.
		return nil
	}))
	w.mu.Unlock()
	stream, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (apiwatch.Interface, error) {
			return watcher.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &raw})
		},
	})
	require.NoError(t, err)
	w.streams.Add(1)
	go func() {
		defer w.streams.Done()
		for {
			select {
			case <-ctx.Done():
				stream.Stop()
				return
			case event, open := <-stream.ResultChan():
				w.mu.Lock()
				o, ok := event.Object.(client.Object)
				switch {
				case ctx.Err() != nil:
				case !open || event.Type == apiwatch.Error:
					w.fault("the watch of %s ended: %v", c.Name, event.Object)
				case ok && event.Type != apiwatch.Bookmark:
					w.events++
					do(event.Type, o)
				}
				w.mu.Unlock()
				if !open {
					return
				}
			}
		}
	}()
}

// watchPlaces reports pods of a namespace that exist at two providers at the same time, as ShadowPods or as running
// pods.
func (b *brokered) watchPlaces(t *testing.T, namespace string) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watching{stop: stop}
	t.Cleanup(stop)
	remote := b.broker.RemoteNamespace(namespace)
	for _, kind := range []struct {
		list client.ObjectList
		one  func() client.Object
	}{
		{&offloadingv1beta1.ShadowPodList{}, func() client.Object { return &offloadingv1beta1.ShadowPod{} }},
		{&corev1.PodList{}, func() client.Object { return &corev1.Pod{} }},
	} {
		at := map[string]map[*sandbox.Cluster]types.UID{}
		has := func(c *sandbox.Cluster, name string, uid types.UID) bool {
			o := kind.one()
			err := c.Client.Get(ctx, client.ObjectKey{Namespace: remote, Name: name}, o)
			return err == nil && o.GetUID() == uid
		}
		for _, provider := range b.providers {
			w.follow(ctx, t, provider, kind.list, remote, func(event apiwatch.EventType, o client.Object) {
				name := o.GetName()
				if at[name] == nil {
					at[name] = map[*sandbox.Cluster]types.UID{}
				}
				if event == apiwatch.Deleted {
					delete(at[name], provider)
					return
				}
				at[name][provider] = o.GetUID()
				for other, uid := range at[name] {
					// Events of two clusters have no common order. But an object that exists both before and after
					// another object was seen existed at the same time as that one.
					if other != provider && has(provider, name, o.GetUID()) && has(other, name, uid) && has(provider, name, o.GetUID()) {
						w.fault("%T %s is at %s and at %s", o, name, provider.Name, other.Name)
					}
				}
			})
		}
	}
	return w
}

// watchCleaning reports if a provider gets a new pod while it still has pods that were moved away from it.
func (b *brokered) watchCleaning(t *testing.T, namespace, provider, newcomer string) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watching{stop: stop}
	t.Cleanup(stop)
	w.follow(ctx, t, b.broker, &corev1.PodList{}, namespace, func(_ apiwatch.EventType, o client.Object) {
		if o.GetName() != newcomer || o.GetLabels()[brokeringv1alpha1.ProviderLabel] != provider {
			return
		}
		// The provider cleans up before the broker checks, and the broker checks before it assigns: no old pod is left
		// now.
		there, err := b.places(ctx, namespace)
		if err != nil {
			return // The test has ended.
		}
		list, err := pods(ctx, b.broker, namespace)
		if err != nil {
			return
		}
		for i := range list {
			at := list[i].Labels[brokeringv1alpha1.ProviderLabel]
			for _, place := range there[list[i].Name] {
				if name, _, _ := strings.Cut(place, "/"); name == provider && at != provider {
					w.fault("%s was assigned to %s, which still had %s of %s", newcomer, provider, list[i].Name, at)
				}
			}
		}
	})
	return w
}
