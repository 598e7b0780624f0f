package brokernode

import (
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1clients "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// Secrets returns Liqo's Secret reflector of a namespace, which omits the tokens of consumers unless they must be
// forwarded. The virtual kubelet of a consumer puts the tokens of a pod's service account into a Secret here
// (forge.RemoteServiceAccountSecret). They give access to the consumer's API server, and are intended for the cluster
// that the consumer trusts, not for the clusters behind it.
func (v View) Secrets(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	if v.ForwardTokens {
		return next
	}
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return tokenless{
			NamespacedReflector: next(opts),
			local:               opts.LocalFactory.Core().V1().Secrets().Lister().Secrets(opts.LocalNamespace),
			remote:              opts.RemoteFactory.Core().V1().Secrets().Lister().Secrets(opts.RemoteNamespace),
			client:              opts.RemoteClient.CoreV1().Secrets(opts.RemoteNamespace),
		}
	}
}

type tokenless struct {
	manager.NamespacedReflector
	local, remote corev1listers.SecretNamespaceLister
	client        corev1clients.SecretInterface
}

// Handle implements manager.NamespacedReflector. It removes a token that was forwarded earlier, when forwarding was
// enabled: Liqo's reflector does not delete Secrets with tokens.
func (r tokenless) Handle(ctx context.Context, name string) error {
	local, err := r.local.Get(name)
	if err != nil || !forge.IsServiceAccountSecret(local) {
		return r.NamespacedReflector.Handle(ctx, name)
	}
	remote, err := r.remote.Get(name)
	if err != nil || !forge.IsReflected(remote) || !forge.IsServiceAccountSecret(remote) {
		return nil
	}
	err = r.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(remote.UID))})
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) {
		return fmt.Errorf("deleting the consumer's tokens in Secret %s at the provider: %w", name, err)
	}
	return nil
}

// withoutTokens returns a ShadowPod whose pod starts without the tokens that are not forwarded. It does not change its
// argument.
func withoutTokens(shadow *offloadingv1beta1.ShadowPod) *offloadingv1beta1.ShadowPod {
	shadow = shadow.DeepCopy()
	for i := range shadow.Spec.Pod.Volumes {
		projected := shadow.Spec.Pod.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			if secret := projected.Sources[j].Secret; secret != nil && secret.Name == forge.ServiceAccountSecretName(shadow.Name) {
				secret.Optional = ptr.To(true)
			}
		}
	}
	return shadow
}
