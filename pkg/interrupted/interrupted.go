// Package interrupted keeps errors that client-go's retry loses. Its OnError and RetryOnConflict return nil when the
// function that they call returns the error of a context: they mistake it for the end of their own wait
// (wait.Interrupted in k8s.io/apimachinery v0.35), and return the last retriable error, of which there is none. So a
// write that had no answer in time counts as done. virtual-kubelet's node controller then uses the Node that it did not
// get, and panics (updateNodeStatus in its node/node.go, v1.11.0).
package interrupted

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// OnError is client-go's retry.OnError, but always returns the error of the last call of fn.
func OnError(backoff wait.Backoff, retriable func(error) bool, fn func() error) error {
	var last error
	_ = retry.OnError(backoff, retriable, func() error {
		last = fn()
		return last
	})
	return last
}

// Nodes returns a client of Nodes whose errors are not recognised as errors of contexts, for virtual-kubelet's node
// controller.
func Nodes(of corev1client.NodeInterface) corev1client.NodeInterface { return nodes{of} }

type nodes struct{ corev1client.NodeInterface }

func (n nodes) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error) {
	node, err := n.NodeInterface.Get(ctx, name, opts)
	return node, opaque(err)
}

func (n nodes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string,
) (*corev1.Node, error) {
	node, err := n.NodeInterface.Patch(ctx, name, kind, data, opts, subresources...)
	return node, opaque(err)
}

// opaque hides that an error is from a context.
func opaque(err error) error {
	if wait.Interrupted(err) {
		return unanswered{err}
	}
	return err
}

// unanswered does not unwrap.
type unanswered struct{ err error }

func (u unanswered) Error() string { return u.err.Error() }
