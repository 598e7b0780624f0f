package process

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/interrupted"
)

// fallbackVersion is the kubelet version shown if the API server's version cannot be read. Liqo's virtual kubelet shows
// it too.
const fallbackVersion = "v1.25.0"

// NodeConfig configures how the Node is maintained.
type NodeConfig struct {
	Log   logr.Logger
	Name  string
	Local kubernetes.Interface

	LeaseDuration, PingInterval, PingTimeout time.Duration
}

// NodeLabels adds to the given labels the one that Liqo after v1.2.0 and other providers of virtual-kubelet put on
// their nodes.
func NodeLabels(given map[string]string) map[string]string {
	return labels.Merge(labels.Set{"type": "virtual-kubelet"}, given)
}

// NodeSource describes the Node. It is Liqo's node provider.
type NodeSource interface {
	node.NodeProvider
	GetNode() *corev1.Node
	// IsTerminating reports whether the node is being removed because its VirtualNode is.
	IsTerminating() bool
}

// RunNode registers the Node, calls registered, and maintains the Node's status and lease until ctx ends, with
// virtual-kubelet's node controller.
func RunNode(ctx context.Context, cfg NodeConfig, source NodeSource, registered func()) error {
	nodes := interrupted.Nodes(cfg.Local.CoreV1().Nodes())
	leases := cfg.Local.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	controller, err := node.NewNodeController(source, source.GetNode(), nodes,
		node.WithNodeEnableLeaseV1(leases, int32(cfg.LeaseDuration.Seconds())),
		node.WithNodePingInterval(cfg.PingInterval),
		node.WithNodePingTimeout(cfg.PingTimeout),
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, cause error) error {
			return restoreNode(ctx, cfg.Log, nodes, source, cause)
		}),
	)
	if err != nil {
		return fmt.Errorf("node %q: %w", cfg.Name, err)
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("node %q: %w", cfg.Name, err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-controller.Ready():
			registered()
		}
		return nil
	})
	return group.Wait()
}

// restoreNode handles a failed status update. A node that no longer exists is recreated, unless it is being removed
// because its VirtualNode is. Any other node gets its status by a plain update.
func restoreNode(ctx context.Context, log logr.Logger, nodes corev1client.NodeInterface,
	source NodeSource, cause error,
) error {
	if source.IsTerminating() {
		return nil
	}
	wanted := source.GetNode().DeepCopy()
	wanted.ResourceVersion = ""
	log.Info("Restoring the node after a failed status update", "node", wanted.Name, "reason", cause.Error())

	existing, err := nodes.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		_, err = nodes.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	existing.Status = wanted.Status
	_, err = nodes.UpdateStatus(ctx, existing, metav1.UpdateOptions{})
	return err
}

// ServerVersion returns the version of an API server, which a virtual node shows as its own.
func ServerVersion(log logr.Logger, local kubernetes.Interface) string {
	version, err := local.Discovery().ServerVersion()
	if err != nil {
		log.Error(err, "Cannot read the API server version, using the fallback", "version", fallbackVersion)
		return fallbackVersion
	}
	return version.GitVersion
}
