// Package absence lets Liqo's reflection delete the remote pod of a deleted pod only when the API server confirms the
// deletion.
package absence

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadinglisters "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// ErrLags means that the cache of local pods does not show a pod that is served here.
var ErrLags = errors.New("the cache does not show the pod yet")

// Confirm returns Liqo's pod reflector of a namespace, which deletes each ShadowPod whose pod is not in the cache. The
// first list of a process has resourceVersion=0 (client-go's Reflector): the watch cache of the API server that answers
// may lag behind etcd by any time, and the ShadowPods of running pods would be deleted. So the pod is read from the API
// server first, with a consistent read. This costs one request for each pod that disappears before its ShadowPod. The
// ShadowPod of a pod that is being deleted is deleted before its pod.
func Confirm(local func(namespace string) corev1listers.PodNamespaceLister, live func(namespace string) corev1client.PodInterface,
	serves func(*corev1.Pod) bool, next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return &confirming{
			NamespacedReflector: next(opts), local: local(opts.LocalNamespace), live: live(opts.LocalNamespace), serves: serves,
			shadows: opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods(opts.RemoteNamespace),
		}
	}
}

type confirming struct {
	manager.NamespacedReflector
	local   corev1listers.PodNamespaceLister
	live    corev1client.PodInterface
	serves  func(*corev1.Pod) bool
	shadows offloadinglisters.ShadowPodNamespaceLister
}

// Handle fails while the cache lags: the pod is retried with backoff, and handled when the cache shows it.
func (c *confirming) Handle(ctx context.Context, name string) error {
	if _, missing := c.local.Get(name); missing != nil {
		if err := c.confirm(ctx, name); err != nil {
			return err
		}
	}
	return c.NamespacedReflector.Handle(ctx, name)
}

func (c *confirming) confirm(ctx context.Context, name string) error {
	shadow, missing := c.shadows.Get(name)
	if missing != nil || shadow.DeletionTimestamp != nil || shadow.Labels[forge.LiqoOriginClusterNodeName] != forge.LiqoNodeName {
		return nil // The wrapped reflector deletes nothing.
	}
	pod, err := c.live.Get(ctx, name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("checking that pod %s no longer exists before its ShadowPod is deleted: %w", name, err)
	}
	if uid := transform.PodUID(shadow); c.serves(pod) && (uid == "" || uid == pod.UID) {
		return fmt.Errorf("pod %s: %w", name, ErrLags)
	}
	return nil
}
