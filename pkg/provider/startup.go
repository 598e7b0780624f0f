package provider

import (
	"context"
	"crypto/tls"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	tenantnamespace "github.com/liqotech/liqo/pkg/tenantNamespace"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// peering holds the values that a virtual kubelet reads once, when it starts.
type peering struct {
	remote *rest.Config
	// secret is the Secret that remote was built from.
	secret *corev1.Secret
	// usable returns why no connection can be built from a Secret.
	usable         func(*corev1.Secret) error
	virtualNode    *offloadingv1beta1.VirtualNode
	foreignCluster *liqov1beta1.ForeignCluster
}

// readPeering reads the peering's objects, and waits for the ones that do not exist yet.
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

	// Liqo's identity manager turns the Secret into a connection. It also supports EKS identities, and refreshes their
	// token until ctx ends.
	identities := identitymanager.NewCertificateIdentityReader(ctx, cl, local, cfg.Home, cfg.HomeCluster,
		tenantnamespace.NewManager(local, cl.Scheme()))

	p := &peering{}
	p.usable = func(secret *corev1.Secret) error {
		_, err := remoteConfig(cfg, secret, identities)
		return err
	}
	what := fmt.Sprintf("remote kubeconfig, Secret %s/%s (--foreign-kubeconfig-secret-name)", cfg.TenantNamespace, cfg.KubeconfigSecretName)
	if p.remote, err = process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, what, func(ctx context.Context) (*rest.Config, error) {
		var err error
		if p.secret, err = local.CoreV1().Secrets(cfg.TenantNamespace).Get(ctx, cfg.KubeconfigSecretName, metav1.GetOptions{}); err != nil {
			return nil, err
		}
		return remoteConfig(cfg, p.secret, identities)
	}); err != nil {
		return nil, err
	}

	what = fmt.Sprintf("VirtualNode %s/%s (environment VIRTUALNODE_NAME, POD_NAMESPACE)", cfg.VirtualNodeNamespace, cfg.VirtualNode)
	getVirtualNode := func(ctx context.Context) (*offloadingv1beta1.VirtualNode, error) {
		raw := &unstructured.Unstructured{}
		raw.SetGroupVersionKind(offloadingv1beta1.SchemeGroupVersion.WithKind(offloadingv1beta1.VirtualNodeKind))
		if err := cl.Get(ctx, client.ObjectKey{Namespace: cfg.VirtualNodeNamespace, Name: cfg.VirtualNode}, raw); err != nil {
			return nil, err
		}
		return virtualNodeOf(raw)
	}
	if p.virtualNode, err = process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, what, getVirtualNode); err != nil {
		return nil, err
	}

	what = fmt.Sprintf("ForeignCluster with id %q (--foreign-cluster-id)", cfg.ForeignCluster)
	getForeignCluster := func(ctx context.Context) (*liqov1beta1.ForeignCluster, error) {
		return fcutils.GetForeignClusterByID(ctx, cl, cfg.ForeignCluster)
	}
	p.foreignCluster, err = process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, what, getForeignCluster)
	return p, err
}

// virtualNodeOf returns a VirtualNode as Liqo v1.2.0 has it. Since v1.3.0 its status has the patch that counts:
// spec.offloadingPatch merged with the lists labelsNotReflected and annotationsNotReflected of the VkOptionsTemplate. It is
// absent if neither sets anything.
func virtualNodeOf(raw *unstructured.Unstructured) (*offloadingv1beta1.VirtualNode, error) {
	vn := &offloadingv1beta1.VirtualNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, vn); err != nil {
		return nil, err
	}
	patch, has, err := unstructured.NestedMap(raw.Object, "status", "effectiveOffloadingPatch")
	if err != nil || !has {
		return vn, err
	}
	vn.Spec.OffloadingPatch = &offloadingv1beta1.OffloadingPatch{}
	return vn, runtime.DefaultUnstructuredConverter.FromUnstructured(patch, vn.Spec.OffloadingPatch)
}

// mayReadConfigurations asks the API server whether this account may read Configurations. Every account may ask this
// about itself. Versions of Liqo after v1.2.0 pass the CIDRs as flags instead of granting this right, and a watch
// without it would be retried indefinitely.
func mayReadConfigurations(ctx context.Context, local kubernetes.Interface) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		review, err := local.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: networkingv1beta1.GroupVersion.Group, Resource: "configurations", Verb: verb,
			}},
		}, metav1.CreateOptions{})
		if err != nil || !review.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}

// remoteConfig builds the connection to the remote cluster from its Secret, with Liqo's rate limits and our deadlines.
// The limits of package untrusted apply to every client built from it, Liqo's own included.
func remoteConfig(cfg *Config, secret *corev1.Secret, identities identitymanager.IdentityReader) (*rest.Config, error) {
	// Any proxy is allowed, as in Liqo's virtual kubelet.
	config, err := untrusted.Config(secret, []string{untrusted.AnyProxy}, func(secret *corev1.Secret) (*rest.Config, error) {
		return identities.GetConfigFromSecret(cfg.ForeignCluster, secret)
	})
	if err != nil {
		return nil, err
	}
	if len(config.CertData) > 0 {
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			return nil, err
		}
	}
	config.UserAgent = cfg.Home.UserAgent
	connect.RetryWatches(config, cfg.Log) // Within package untrusted: its errors must not be retried.
	untrusted.Wrap(config)
	connect.Limit(config, cfg.RequestTimeout)
	return config, nil
}

func staticMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(offloadingv1beta1.SchemeGroupVersion.WithKind("VirtualNode"), meta.RESTScopeNamespace)
	mapper.Add(liqov1beta1.GroupVersion.WithKind("ForeignCluster"), meta.RESTScopeRoot)
	return mapper
}
