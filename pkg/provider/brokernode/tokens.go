package brokernode

import (
	"context"

	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// Secrets returns Liqo's Secret reflector of a namespace, which leaves out the tokens of consumers unless they are to be
// forwarded. The virtual kubelet of a consumer puts the tokens of a pod's service account, with which the consumer's API
// server can be called, into a Secret here (forge.RemoteServiceAccountSecret); it is for the cluster that the consumer
// trusts, not for those behind it.
func (v View) Secrets(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	if v.ForwardTokens {
		return next
	}
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return tokenless{
			NamespacedReflector: next(opts),
			secrets:             opts.LocalFactory.Core().V1().Secrets().Lister().Secrets(opts.LocalNamespace),
		}
	}
}

type tokenless struct {
	manager.NamespacedReflector
	secrets corev1listers.SecretNamespaceLister
}

func (r tokenless) Handle(ctx context.Context, name string) error {
	if secret, err := r.secrets.Get(name); err == nil && forge.IsServiceAccountSecret(secret) {
		return nil
	}
	return r.NamespacedReflector.Handle(ctx, name)
}

// withoutTokens returns a ShadowPod whose pod starts without the tokens that are not forwarded. The one given stays as it
// is.
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
