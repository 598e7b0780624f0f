package requeue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func keyOf(namespace string, n int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(n)}}
}

// popped returns the namespaces of the next keys.
func popped(q workqueue.TypedInterface[reconcile.Request], n int) string {
	var namespaces []string
	for range n {
		key, _ := q.Get()
		q.Done(key)
		namespaces = append(namespaces, key.Namespace)
	}
	return strings.Join(namespaces, " ")
}

func TestConsumersTakeTurns(t *testing.T) {
	consumers := &Consumers{}
	consumers.Set("c1", 1, []string{"a", "a2"})
	consumers.Set("c3", 3, []string{"c"})
	q := consumers.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for i := range 5 {
		q.Add(keyOf("a", i))
	}
	for i := range 2 {
		q.Add(keyOf("a2", i)) // Another namespace gains nothing.
	}
	for i := range 4 {
		q.Add(keyOf("c", i))
	}
	q.Add(keyOf("own", 0))
	q.Add(keyOf("own", 0))
	require.Equal(t, 12, q.Len())
	require.Equal(t, "a c c c own a c a a a a2 a2", popped(q, 12))
	require.Zero(t, q.Len())

	// The weight of c3 is gone, and a belongs to it now.
	consumers.Set("c1", 1, nil)
	consumers.Set("c3", 1, []string{"a", "c"})
	for i := range 2 {
		q.Add(keyOf("a", i))
		q.Add(keyOf("c", i))
		q.Add(keyOf("a2", i))
	}
	require.Equal(t, "a a2 c a2 a c", popped(q, 6))
}

// A key that is added while it is processed follows, and is not lost.
func TestAKeyThatIsAddedAgainIsProcessedAgain(t *testing.T) {
	q := (&Consumers{}).NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	q.Add(keyOf("a", 1))
	key, _ := q.Get()
	q.Add(keyOf("a", 1))
	require.Zero(t, q.Len())
	q.Done(key)
	require.Equal(t, "a", popped(q, 1))
}

// 1,500 pods of one consumer are queued. A pod of another is the second.
func TestManyKeysOfOneConsumerDoNotDelayAnother(t *testing.T) {
	consumers := &Consumers{}
	consumers.Set("c1", 1, []string{"a"})
	consumers.Set("c2", 1, []string{"b"})
	q := consumers.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for i := range 1500 {
		q.Add(keyOf("a", i))
	}
	q.Add(keyOf("b", 0))
	require.Equal(t, "a b", popped(q, 2))
}
