package histories

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/node"
)

// runNode writes the Node in place of virtual-kubelet's node controller. That one leaks a goroutine when it ends: a
// later status report of its provider blocks (NotifyNodeStatus in its node/node.go, v1.11.0), so a synctest bubble
// would not end.
func runNode(ctx context.Context, n *node.Node, c *cachedClient) error {
	latest := make(chan *corev1.Node, 1)
	n.NotifyNodeStatus(ctx, func(fresh *corev1.Node) {
		select {
		case <-latest: // It was not written yet.
		default:
		}
		latest <- fresh
	})
	again := time.NewTicker(time.Minute) // statusInterval in its node/node.go.
	defer again.Stop()
	var fresh *corev1.Node
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case fresh = <-latest:
		}
		if fresh != nil {
			_ = writeNode(ctx, c, fresh.DeepCopy())
		}
	}
}

func writeNode(ctx context.Context, c *cachedClient, fresh *corev1.Node) error {
	status := fresh.Status
	err := c.write(ctx, "patch", fresh, func() (client.Object, error) {
		return c.live.server.update(c.live.process.name, fresh, true, func(o client.Object) error {
			o.(*corev1.Node).Status = status
			return nil
		})
	})
	if kerrors.IsNotFound(err) {
		err = c.Create(ctx, fresh)
	}
	return err
}
