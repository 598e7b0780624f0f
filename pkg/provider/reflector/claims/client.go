package claims

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1clients "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Successive returns Liqo's reflector of claims with a client that makes a claim only when an earlier one of its name is
// gone. Liqo's would write to the earlier one, and take its data, or lose it when its deletion ends.
func Successive(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		successive := *opts
		client := successiveOf(opts, func(claim *corev1.PersistentVolumeClaim) (string, error) {
			return string(claim.UID), nil
		})
		client.ofLiqo = true
		successive.RemoteClient = client
		return next(&successive)
	}
}

// successiveOf returns the client; origin returns the value of v1alpha1.ClaimOriginAnnotation for a claim here.
func successiveOf(opts *options.NamespacedOpts, origin func(*corev1.PersistentVolumeClaim) (string, error),
) remoteClient {
	return remoteClient{
		Interface: opts.RemoteClient, origin: origin,
		local:  opts.LocalFactory.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(opts.LocalNamespace),
		remote: opts.RemoteFactory.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(opts.RemoteNamespace),
	}
}

// remoteClient is a client of the remote cluster. The types below are the path to its claims.
type remoteClient struct {
	kubernetes.Interface
	local, remote corev1listers.PersistentVolumeClaimNamespaceLister
	origin        func(*corev1.PersistentVolumeClaim) (string, error)
	// ofLiqo means that Liqo's reflector uses it.
	ofLiqo bool
}

func (c remoteClient) CoreV1() corev1clients.CoreV1Interface {
	return core{c.Interface.CoreV1(), c}
}

type core struct {
	corev1clients.CoreV1Interface
	client remoteClient
}

func (c core) PersistentVolumeClaims(namespace string) corev1clients.PersistentVolumeClaimInterface {
	return claims{c.CoreV1Interface.PersistentVolumeClaims(namespace), c.client}
}

type claims struct {
	corev1clients.PersistentVolumeClaimInterface
	client remoteClient
}

// Apply implements corev1clients.PersistentVolumeClaimInterface.
func (c claims) Apply(ctx context.Context, claim *v1apply.PersistentVolumeClaimApplyConfiguration, opts metav1.ApplyOptions,
) (*corev1.PersistentVolumeClaim, error) {
	name := *claim.Name
	local, err := c.client.local.Get(name)
	if err != nil {
		return nil, err // It was deleted.
	}
	origin, err := c.client.origin(local)
	if err != nil {
		return nil, err
	}
	if known, err := c.client.remote.Get(name); err == nil && forge.IsReflected(known) {
		if isOfAnother(known, origin) {
			if isOfVolume(known) && !strings.Contains(origin, "/") {
				return nil, fmt.Errorf("the claim %s there belongs to a volume of the broker's Node", name)
			}
			if err := c.Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(known.UID))); ignoreNotFound(err) != nil {
				return nil, err
			}
			return nil, fmt.Errorf("an earlier claim %s is being deleted", name)
		}
		claim = claim.WithUID(known.UID) // Otherwise a claim that is gone would be made again.
	}
	claim = claim.WithAnnotations(map[string]string{v1alpha1.ClaimOriginAnnotation: origin})
	made, err := c.PersistentVolumeClaimInterface.Apply(ctx, claim, opts)
	if err == nil && made.DeletionTimestamp != nil {
		err = fmt.Errorf("an earlier claim %s is being deleted", name)
	}
	return made, err
}

// isOfAnother reports whether a remote claim has another origin.
func isOfAnother(remote *corev1.PersistentVolumeClaim, origin string) bool {
	of := remote.Annotations[v1alpha1.ClaimOriginAnnotation]
	return of != "" && of != origin
}

// isOfVolume reports whether the virtual kubelet of a broker's Node made a claim. Those claims end with their volumes.
func isOfVolume(remote *corev1.PersistentVolumeClaim) bool {
	return strings.Contains(remote.Annotations[v1alpha1.ClaimOriginAnnotation], "/")
}

// Delete implements corev1clients.PersistentVolumeClaimInterface. Liqo's reflector deletes each reflected claim without a
// local one, also the claims of a broker's Node whose volumes are kept.
func (c claims) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if known, err := c.client.remote.Get(name); c.client.ofLiqo && err == nil && isOfVolume(known) {
		return nil
	}
	return c.PersistentVolumeClaimInterface.Delete(ctx, name, opts)
}
