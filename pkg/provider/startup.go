package provider

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	tenantnamespace "github.com/liqotech/liqo/pkg/tenantNamespace"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"
	"github.com/liqotech/liqo/pkg/utils/restcfg"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// peering is what a virtual kubelet reads once, when it starts to work.
type peering struct {
	remote         *rest.Config
	virtualNode    *offloadingv1beta1.VirtualNode
	foreignCluster *liqov1beta1.ForeignCluster
}

// readPeering reads the peering's objects, waiting for those that are not there yet.
func readPeering(ctx context.Context, cfg *Config, local kubernetes.Interface) (*peering, error) {
	scheme, err := apischeme.New()
	if err != nil {
		return nil, err
	}
	// The mapper knows the few kinds read here, which saves the discovery of the whole API.
	cl, err := client.New(cfg.Home, client.Options{Scheme: scheme, Mapper: staticMapper()})
	if err != nil {
		return nil, fmt.Errorf("home cluster: %w", err)
	}

	// Liqo's identity manager turns the Secret into a connection; it also knows EKS identities, whose token it keeps
	// fresh until ctx ends.
	identities := identitymanager.NewCertificateIdentityReader(ctx, cl, local, cfg.Home, cfg.HomeCluster,
		tenantnamespace.NewManager(local, cl.Scheme()))

	p := &peering{}
	what := fmt.Sprintf("remote kubeconfig, Secret %s/%s (--foreign-kubeconfig-secret-name)", cfg.TenantNamespace, cfg.KubeconfigSecretName)
	if p.remote, err = eventually(ctx, cfg, what, func(ctx context.Context) (*rest.Config, error) {
		return remoteConfig(ctx, cfg, local, identities)
	}); err != nil {
		return nil, err
	}

	what = fmt.Sprintf("VirtualNode %s/%s (environment VIRTUALNODE_NAME, POD_NAMESPACE)", cfg.VirtualNodeNamespace, cfg.VirtualNode)
	if p.virtualNode, err = eventually(ctx, cfg, what, func(ctx context.Context) (*offloadingv1beta1.VirtualNode, error) {
		vn := &offloadingv1beta1.VirtualNode{}
		return vn, cl.Get(ctx, client.ObjectKey{Namespace: cfg.VirtualNodeNamespace, Name: cfg.VirtualNode}, vn)
	}); err != nil {
		return nil, err
	}

	what = fmt.Sprintf("ForeignCluster with id %q (--foreign-cluster-id)", cfg.ForeignCluster)
	p.foreignCluster, err = eventually(ctx, cfg, what, func(ctx context.Context) (*liqov1beta1.ForeignCluster, error) {
		return fcutils.GetForeignClusterByID(ctx, cl, cfg.ForeignCluster)
	})
	return p, err
}

// remoteConfig builds the connection to the remote cluster from its Secret, with the bounds of distrust for every client
// made of it, Liqo's own included.
func remoteConfig(ctx context.Context, cfg *Config, local kubernetes.Interface,
	identities identitymanager.IdentityReader,
) (*rest.Config, error) {
	secret, err := local.CoreV1().Secrets(cfg.TenantNamespace).Get(ctx, cfg.KubeconfigSecretName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	config, err := identities.GetConfigFromSecret(cfg.ForeignCluster, secret)
	if err != nil {
		return nil, err
	}
	if len(config.CertData) > 0 {
		// Liqo's certificate rotation exits the process if these do not fit together.
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			return nil, err
		}
	}
	config.UserAgent = cfg.Home.UserAgent
	distrust.Wrap(config)
	return config, nil
}

// keepRotated sets Liqo's rate limits and our deadlines on the connection, and follows the Secret when Liqo renews the
// client certificate in it. It must be called before the first client is made.
func keepRotated(ctx context.Context, cfg *Config, remote *rest.Config, local kubernetes.Interface) {
	connect.Limit(remote, cfg.RequestTimeout)
	restcfg.UpdateCfgCertOnSecretChange(ctx, remote, local, cfg.TenantNamespace, cfg.KubeconfigSecretName)
}

// eventually calls get until it succeeds, with backoff, for at most the startup timeout: the controllers of Liqo may
// make the objects after this process, and an API server may be restarting.
func eventually[T any](ctx context.Context, cfg *Config, what string, get func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, cfg.StartupTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 10 * time.Second}

	for {
		// The value is got with ctx, not the bounded one: what it starts may live on.
		value, err := get(ctx)
		if err == nil {
			return value, nil
		}
		pause := time.NewTimer(backoff.Step())
		select {
		case <-pause.C:
			cfg.Log.Info("Waiting", "for", what, "because", err.Error())
		case <-bounded.Done():
			pause.Stop()
			var none T
			if ctx.Err() != nil {
				return none, ctx.Err()
			}
			return none, fmt.Errorf("%s: %w (gave up after %s, --startup-timeout)", what, err, cfg.StartupTimeout)
		}
	}
}

// waitFor waits until done is closed; it returns an error if ctx ended, or the timeout was over, first.
func waitFor(ctx context.Context, done <-chan struct{}, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("gave up after %s, --startup-timeout", timeout)
	}
}

func staticMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(offloadingv1beta1.SchemeGroupVersion.WithKind("VirtualNode"), meta.RESTScopeNamespace)
	mapper.Add(liqov1beta1.GroupVersion.WithKind("ForeignCluster"), meta.RESTScopeRoot)
	return mapper
}
