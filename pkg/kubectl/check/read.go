package check

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
)

// Labels of the Deployments of the broker and the catalog, and of Liqo's controllers, as their charts set them.
const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	partOfLabel    = "app.kubernetes.io/part-of"
	versionLabel   = "app.kubernetes.io/version"
)

// installation is the state of the broker's cluster, as far as the caller may read it.
type installation struct {
	*Config
	// now is the time by the clock of the API server, if that is known.
	now time.Time

	brokers, catalogs, liqo []appsv1.Deployment
	crds                    map[string]*apiextensionsv1.CustomResourceDefinition
	policies                []admissionv1.ValidatingAdmissionPolicy
	bindings                []admissionv1.ValidatingAdmissionPolicyBinding
	// node, lease, service and claim are nil if they do not exist.
	node         *corev1.Node
	lease        *coordinationv1.Lease
	templates    []offloadingv1beta1.VkOptionsTemplate
	virtualNodes []offloadingv1beta1.VirtualNode
	providers    []v1alpha1.ProviderCluster
	identities   []authv1beta1.Identity
	service      *corev1.Service
	claim        *corev1.PersistentVolumeClaim

	// denied has the right that the caller lacks, by resource; unserved the resources that the API server does not have.
	denied   map[resource]string
	unserved map[resource]bool
	// rights are the caller's, and caller is its name; "" if that is not known.
	rights map[Right]bool
	caller string
}

// resource is a resource that is read, as kubectl names it.
type resource string

const (
	deployments  resource = "deployments.apps"
	crds         resource = "customresourcedefinitions.apiextensions.k8s.io"
	policies     resource = "validatingadmissionpolicies.admissionregistration.k8s.io"
	bindings     resource = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	nodes        resource = "nodes"
	leases       resource = "leases.coordination.k8s.io"
	templates    resource = "vkoptionstemplates.offloading.liqo.io"
	virtualNodes resource = "virtualnodes.offloading.liqo.io"
	providers    resource = "providerclusters.brokering.liqo.io"
	identities   resource = "identities.authentication.liqo.io"
	services     resource = "services"
	claims       resource = "persistentvolumeclaims"
)

// read reads the installation.
func read(ctx context.Context, cfg *Config) (*installation, error) {
	i := &installation{
		Config: cfg, crds: map[string]*apiextensionsv1.CustomResourceDefinition{},
		denied: map[resource]string{}, unserved: map[resource]bool{}, rights: map[Right]bool{},
	}
	for _, step := range []func(context.Context) error{
		i.readDeployments, i.readKinds, i.readNode, i.readLiqo, i.readParts, i.readRights,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	i.now = cfg.Now()
	if ahead, known := i.ahead(); known {
		i.now = i.now.Add(ahead)
	}
	return i, nil
}

func (i *installation) ahead() (time.Duration, bool) {
	if i.Ahead == nil {
		return 0, false
	}
	return i.Ahead()
}

func (i *installation) readDeployments(ctx context.Context) error {
	var ours, liqos appsv1.DeploymentList
	if err := i.list(ctx, deployments, &ours, client.MatchingLabels{nameLabel: "liqo-broker-vk"}); err != nil {
		return err
	}
	for j := range ours.Items {
		switch ours.Items[j].Labels[componentLabel] {
		case "broker":
			i.brokers = append(i.brokers, ours.Items[j])
		case "catalog":
			i.catalogs = append(i.catalogs, ours.Items[j])
		}
	}
	err := i.list(ctx, deployments, &liqos, client.MatchingLabels{nameLabel: "controller-manager", partOfLabel: "liqo"})
	i.liqo = liqos.Items
	return err
}

// readKinds reads the CRDs and the guard.
func (i *installation) readKinds(ctx context.Context) error {
	for _, kind := range kinds() {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if found, err := i.get(ctx, crds, client.ObjectKey{Name: kind.crd}, crd); err != nil {
			return err
		} else if found {
			i.crds[kind.crd] = crd
		}
	}
	var p admissionv1.ValidatingAdmissionPolicyList
	var b admissionv1.ValidatingAdmissionPolicyBindingList
	if err := i.list(ctx, policies, &p); err != nil {
		return err
	}
	err := i.list(ctx, bindings, &b)
	i.policies, i.bindings = p.Items, b.Items
	return err
}

func (i *installation) readNode(ctx context.Context) error {
	node, lease := &corev1.Node{}, &coordinationv1.Lease{}
	if found, err := i.get(ctx, nodes, client.ObjectKey{Name: i.Node}, node); err != nil {
		return err
	} else if found {
		i.node = node
	}
	found, err := i.get(ctx, leases, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: i.Node}, lease)
	if found {
		i.lease = lease
	}
	return err
}

// readLiqo reads Liqo's objects, and the ProviderClusters.
func (i *installation) readLiqo(ctx context.Context) error {
	var t offloadingv1beta1.VkOptionsTemplateList
	var v offloadingv1beta1.VirtualNodeList
	var p v1alpha1.ProviderClusterList
	var d authv1beta1.IdentityList
	for _, l := range []struct {
		resource resource
		into     client.ObjectList
	}{{templates, &t}, {virtualNodes, &v}, {providers, &p}, {identities, &d}} {
		if err := i.list(ctx, l.resource, l.into); err != nil {
			return err
		}
	}
	i.templates, i.virtualNodes, i.providers, i.identities = t.Items, v.Items, p.Items, d.Items
	return nil
}

// readParts reads the objects that the arguments of the broker need.
func (i *installation) readParts(ctx context.Context) error {
	broker := i.broker()
	if broker == nil {
		return nil
	}
	if i.servesIPAM() {
		service := &corev1.Service{}
		if found, err := i.get(ctx, services, client.ObjectKey{Namespace: broker.Namespace, Name: ipam.ServiceName}, service); err != nil {
			return err
		} else if found {
			i.service = service
		}
	}
	name := i.ledgerClaim()
	if name == "" {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	found, err := i.get(ctx, claims, client.ObjectKey{Namespace: broker.Namespace, Name: name}, claim)
	if found {
		i.claim = claim
	}
	return err
}

// get reads an object, and reports whether it was found.
func (i *installation) get(ctx context.Context, r resource, key client.ObjectKey, into client.Object) (bool, error) {
	err := i.Client.Get(ctx, key, into)
	if kerrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, i.refused("get", r, err)
}

func (i *installation) list(ctx context.Context, r resource, into client.ObjectList, options ...client.ListOption) error {
	err := i.Client.List(ctx, into, options...)
	if kerrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		i.unserved[r] = true
		return nil
	}
	return i.refused("list", r, err)
}

// refused keeps that the caller may not read a resource. It returns other errors.
func (i *installation) refused(verb string, r resource, err error) error {
	if kerrors.IsForbidden(err) {
		i.denied[r] = verb
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r, err)
	}
	return nil
}

// unread returns a check in place of the ones that need a resource, if the caller may not read it; otherwise nil.
func (i *installation) unread(name string, needed ...resource) []Check {
	for _, r := range needed {
		if verb, denied := i.denied[r]; denied {
			return []Check{warn(name, fmt.Sprintf("not checked: the caller may not %s %s", verb, r), i.grant([]string{verb}, r))}
		}
	}
	return nil
}
