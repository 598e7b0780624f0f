package provider

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// secretSettles is how long followSecret waits after a change of the Secret, so that several writes cause one restart.
// Jitter of up to the same time spreads the restarts of virtual kubelets whose certificates are renewed together.
const secretSettles = 5 * time.Second

// followSecret returns an error once the Secret requires another connection to the remote cluster than the current one:
// Liqo renews the client certificate well before it expires, and the remote cluster may change its address or its CA.
// The next process starts with the new connection. In this process, watches would keep connections with the previous
// certificate in use, and the API server rejects them when that expires (Liqo's restcfg.UpdateCfgCertOnSecretChange
// closes idle connections only).
//
// A Secret that is missing, or that yields no valid connection, is ignored.
func followSecret(ctx context.Context, cfg *Config, local kubernetes.Interface, p *peering) error {
	changed := make(chan *corev1.Secret, 1)
	notice := func(object any) {
		secret, is := object.(*corev1.Secret)
		if !is {
			return
		}
		select {
		case <-changed: // Only the last Secret counts.
		default:
		}
		changed <- secret // Nothing else sends.
	}
	informer := informers.NewSharedInformerFactoryWithOptions(local, 0, informers.WithNamespace(cfg.TenantNamespace),
		informers.WithTweakListOptions(func(opts *metav1.ListOptions) {
			opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.KubeconfigSecretName).String()
		})).Core().V1().Secrets().Informer()
	// The first list counts, too: the Secret may have changed since it was read.
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notice, UpdateFunc: func(_, object any) { notice(object) },
	}); err != nil {
		return fmt.Errorf("watching the remote kubeconfig: %w", err)
	}
	var running wait.Group
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.StartWithContext(ctx, informer.RunWithContext)

	settled := time.NewTimer(0)
	defer settled.Stop()
	var latest *corev1.Secret
	for {
		select {
		case <-ctx.Done():
			return nil
		case latest = <-changed:
			settled.Reset(wait.Jitter(secretSettles, 1))
			continue
		case <-settled.C:
		}
		if latest == nil || maps.EqualFunc(latest.Data, p.secret.Data, bytes.Equal) {
			continue
		}
		if err := p.usable(latest); err != nil {
			cfg.Log.Info("Ignoring invalid remote kubeconfig, keeping the previous one",
				"secret", cfg.KubeconfigSecretName, "reason", untrusted.Text(err.Error()))
			continue
		}
		return fmt.Errorf("the remote kubeconfig, Secret %s/%s, has changed: exiting, the next process uses it",
			cfg.TenantNamespace, cfg.KubeconfigSecretName)
	}
}
