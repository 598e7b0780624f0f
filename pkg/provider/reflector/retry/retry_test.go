package retry

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// scripted is a reflector with scripted results.
type scripted struct {
	ready   bool
	err     error
	handled int
}

func (s *scripted) Ready() bool                { return s.ready }
func (s *scripted) List() ([]any, error)       { return nil, nil }
func (s *scripted) Keys(_, _ string) []podName { return nil }

func (s *scripted) handle() error {
	s.handled++
	return s.err
}

type podName = types.NamespacedName

type scriptedNamespace struct{ *scripted }

func (s scriptedNamespace) Handle(context.Context, string) error { return s.handle() }

type scriptedFallback struct{ *scripted }

func (s scriptedFallback) Handle(context.Context, podName) error { return s.handle() }

func TestEveryPodHasItsOwnBackOff(t *testing.T) {
	broken := &scripted{err: errors.New("conflict")}
	namespace := &retryingReflector{NamespacedReflector: scriptedNamespace{broken}, namespace: "ns", retries: New()}
	require.True(t, namespace.Ready(), "or the generic reflector would take a turn in its bucket")

	require.Equal(t, generic.EnqueueAfter(firstRetry), namespace.Handle(t.Context(), "early"))
	require.Zero(t, broken.handled, "its caches are not filled yet")

	broken.ready = true
	require.Equal(t, generic.EnqueueAfter(2*firstRetry), namespace.Handle(t.Context(), "early"))
	require.Equal(t, 1, broken.handled)
	for range 200 {
		_ = namespace.Handle(t.Context(), "unlucky")
	}
	require.Equal(t, generic.EnqueueAfter(lastRetry), namespace.Handle(t.Context(), "unlucky"))
	require.Equal(t, generic.EnqueueAfter(firstRetry), namespace.Handle(t.Context(), "other"), "it does not wait for the others")

	broken.err = nil
	require.NoError(t, namespace.Handle(t.Context(), "unlucky"))
	broken.err = errors.New("again")
	require.Equal(t, generic.EnqueueAfter(firstRetry), namespace.Handle(t.Context(), "unlucky"), "success is forgiveness")
}

func TestPodsWithoutANamespaceAreRetriedToo(t *testing.T) {
	orphans := &scripted{}
	fallback := &retryingFallback{FallbackReflector: scriptedFallback{orphans}, retries: New()}
	require.True(t, fallback.Ready())
	require.Equal(t, generic.EnqueueAfter(firstRetry), fallback.Handle(t.Context(), podName{Namespace: "ns", Name: "a"}))
	orphans.ready = true
	require.NoError(t, fallback.Handle(t.Context(), podName{Namespace: "ns", Name: "a"}))
	require.Equal(t, 1, orphans.handled)
}

func TestTheBackOffsOfANamespaceEndWithIt(t *testing.T) {
	broken := &scripted{ready: true, err: errors.New("conflict")}
	start := New().Namespaced(func(*options.NamespacedOpts) manager.NamespacedReflector { return scriptedNamespace{broken} })
	first := start(&options.NamespacedOpts{LocalNamespace: "ns"})
	for range 20 {
		_ = first.Handle(t.Context(), "unlucky")
	}
	require.Equal(t, generic.EnqueueAfter(lastRetry), first.Handle(t.Context(), "unlucky"))
	again := start(&options.NamespacedOpts{LocalNamespace: "ns"})
	require.Equal(t, generic.EnqueueAfter(firstRetry), again.Handle(t.Context(), "unlucky"))
}
