package drift

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// ConfigMaps returns a reflector of ConfigMaps. It deletes an immutable ConfigMap in the remote cluster if its original
// has other data: the original was deleted and recreated before the virtual kubelet saw the deletion. Liqo would apply
// the new data again and again, and the remote API server would reject it. The next retry creates the copy.
func ConfigMaps(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return &replacing[*corev1.ConfigMap]{
			NamespacedReflector: next(opts),
			originals:           opts.LocalFactory.Core().V1().ConfigMaps().Lister().ConfigMaps(opts.LocalNamespace),
			copies:              opts.RemoteClient.CoreV1().ConfigMaps(opts.RemoteNamespace),
			nameOfCopy:          forge.RemoteConfigMapName,
			isOutdated: func(original, found *corev1.ConfigMap) bool {
				return ptr.Deref(found.Immutable, false) && (!ptr.Deref(original.Immutable, false) ||
					!apiequality.Semantic.DeepEqual(original.Data, found.Data) ||
					!apiequality.Semantic.DeepEqual(original.BinaryData, found.BinaryData))
			},
		}
	}
}

// Secrets does the same for Secrets. The type of a Secret is always immutable.
func Secrets(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return &replacing[*corev1.Secret]{
			NamespacedReflector: next(opts),
			originals:           opts.LocalFactory.Core().V1().Secrets().Lister().Secrets(opts.LocalNamespace),
			copies:              opts.RemoteClient.CoreV1().Secrets(opts.RemoteNamespace),
			nameOfCopy:          func(name string) string { return name },
			isOutdated: func(original, found *corev1.Secret) bool {
				if *forge.RemoteSecret(original, opts.RemoteNamespace, opts.ForgingOpts).Type != found.Type {
					return true
				}
				return ptr.Deref(found.Immutable, false) && (!ptr.Deref(original.Immutable, false) ||
					!apiequality.Semantic.DeepEqual(original.Data, found.Data))
			},
		}
	}
}

// replacing deletes remote copies whose immutable data differs from their originals'.
type replacing[T client.Object] struct {
	manager.NamespacedReflector
	originals interface{ Get(name string) (T, error) }
	copies    interface {
		Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
		Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	}
	nameOfCopy func(original string) string
	isOutdated func(original, found T) bool
}

// Handle implements manager.NamespacedReflector. It always returns the error of Liqo's reflector, which causes a retry.
func (r *replacing[T]) Handle(ctx context.Context, name string) error {
	err := r.NamespacedReflector.Handle(ctx, name)
	if !kerrors.IsInvalid(err) {
		return err
	}
	if failed := client.IgnoreNotFound(r.deleteOutdated(ctx, name)); failed != nil {
		return fmt.Errorf("%w; deleting the outdated copy: %w", err, failed)
	}
	return err
}

func (r *replacing[T]) deleteOutdated(ctx context.Context, name string) error {
	original, err := r.originals.Get(name)
	if err != nil { // The original was deleted: Liqo deletes the copy.
		return err
	}
	found, err := r.copies.Get(ctx, r.nameOfCopy(name), metav1.GetOptions{})
	if err != nil || !forge.IsReflected(found) || !r.isOutdated(original, found) {
		return err
	}
	return r.copies.Delete(ctx, found.GetName(), *metav1.NewPreconditionDeleteOptions(string(found.GetUID())))
}
