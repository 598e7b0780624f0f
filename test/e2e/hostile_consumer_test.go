package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// served is a resource that the API of the broker's cluster serves.
type served struct {
	schema.GroupVersionKind
	plural string
}

// all is the path of the resource in all namespaces.
func (r served) all() string { return r.root() + "/" + r.plural }

func (r served) in(namespace string) string {
	return r.root() + "/namespaces/" + namespace + "/" + r.plural
}

func (r served) root() string {
	if r.Group == "" {
		return "/api/" + r.Version
	}
	return "/apis/" + r.Group + "/" + r.Version
}

// forwardedResources returns the resources that a consumer has in its namespaces at the broker.
func forwardedResources() []served {
	return []served{
		{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"},
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"},
		{corev1.SchemeGroupVersion.WithKind("Pod"), "pods"},
		{offloadingv1beta1.SchemeGroupVersion.WithKind("ShadowPod"), "shadowpods"},
	}
}

// tenantResources returns the resources in the tenant namespace of a consumer. Its control plane may read the first
// two.
func tenantResources() []served {
	return []served{
		{authv1beta1.GroupVersion.WithKind("ResourceSlice"), "resourceslices"},
		{offloadingv1beta1.SchemeGroupVersion.WithKind("NamespaceMap"), "namespacemaps"},
		{authv1beta1.GroupVersion.WithKind("Tenant"), "tenants"},
		{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"},
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"},
	}
}

// readsNothing checks that a consumer can read no object of another consumer, of a provider or of the broker in the
// broker's cluster, with any of its identities and by any path. It can read its own objects by the same paths, which
// proves that the paths are right.
func (c *chain) readsNothing(t *testing.T) {
	attacker, victim := c.consumers[0], c.consumers[1]
	mine, theirs := c.confidential(t, attacker), c.confidential(t, victim)
	identities := map[authv1beta1.IdentityType]rest.Interface{}
	for _, kind := range []authv1beta1.IdentityType{authv1beta1.ControlPlaneIdentityType, authv1beta1.ResourceSliceIdentityType} {
		identities[kind] = newClient(t, identityOf(t, attacker, kind)).Discovery().RESTClient()
	}
	administrator := c.broker.Kube.Discovery().RESTClient()

	own := map[authv1beta1.IdentityType][]string{}
	for _, r := range forwardedResources() {
		own[authv1beta1.ResourceSliceIdentityType] = append(own[authv1beta1.ResourceSliceIdentityType], c.reads(t, r, mine)...)
	}
	for _, r := range tenantResources()[:2] {
		own[authv1beta1.ControlPlaneIdentityType] = append(own[authv1beta1.ControlPlaneIdentityType],
			c.reads(t, r, "liqo-tenant-"+attacker.Name)...)
	}
	for kind, paths := range own {
		for _, path := range paths {
			assert.NoError(t, getPath(t.Context(), identities[kind], path), "%s reads its own %s", kind, path)
		}
	}

	for _, path := range c.foreign(t, victim, theirs) {
		assert.NoError(t, getPath(t.Context(), administrator, path), "%s is there", path)
		for kind, identity := range identities {
			err := getPath(t.Context(), identity, path)
			assert.True(t, kerrors.IsForbidden(err), "%s reads %s: %v", kind, path, err)
		}
	}
	for kind, identity := range identities {
		for path, verbs := range streams(theirs) {
			for _, verb := range verbs {
				err := identity.Verb(verb).RequestURI(path).Do(t.Context()).Error()
				assert.True(t, kerrors.IsForbidden(err), "%s: %s %s: %v", kind, verb, path, err)
			}
		}
	}
}

// foreign returns the paths of a victim's objects in the broker's cluster, of Secrets in other namespaces, and of
// objects without a namespace.
func (c *chain) foreign(t *testing.T, victim *sandbox.Cluster, theirs string) []string {
	t.Helper()
	var paths []string
	for _, r := range forwardedResources() {
		paths = append(append(paths, r.all()), c.reads(t, r, theirs)...)
	}
	for _, r := range tenantResources() {
		paths = append(append(paths, r.all()), c.reads(t, r, "liqo-tenant-"+victim.Name)...)
	}
	for _, namespace := range []string{"kube-system", "liqo", sandbox.BrokerComponent, "liqo-tenant-" + sandbox.Provider(1)} {
		paths = append(paths, "/api/v1/namespaces/"+namespace+"/secrets")
	}
	return append(paths,
		"/api/v1/nodes", "/api/v1/namespaces", "/api/v1/namespaces/"+theirs, "/apis/core.liqo.io/v1beta1/foreignclusters",
		"/apis/brokering.liqo.io/v1alpha1/providerclusters", "/apis/brokering.liqo.io/v1alpha1/placementpolicies",
		"/apis/brokering.liqo.io/v1alpha1/consumerclusters",
	)
}

// streams returns the paths of the streams of a pod, each with the methods of SPDY and WebSockets.
func streams(namespace string) map[string][]string {
	pod := "/api/v1/namespaces/" + namespace + "/pods/confidential"
	both := []string{http.MethodPost, http.MethodGet}
	return map[string][]string{
		pod + "/log": {http.MethodGet}, pod + "/proxy/": both, "/api/v1/nodes/" + brokerNode + "/proxy/pods": both,
		pod + "/exec?command=env&stdout=true": both, pod + "/attach?stdout=true": both, pod + "/portforward?ports=80": both,
	}
}

// confidential offloads a namespace of a consumer, with a pod, a Secret and a ConfigMap of that name. It returns the
// name of the namespace at the broker once all of them exist there.
func (c *chain) confidential(t *testing.T, consumer *sandbox.Cluster) string {
	t.Helper()
	const name = "confidential"
	namespace := c.offload(t, consumer)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	require.NoError(t, consumer.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"a": "b"}}))
	require.NoError(t, consumer.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}))
	c.pod(t, consumer, namespace, name, "true")
	atBroker := client.ObjectKey{Namespace: consumer.RemoteNamespace(namespace), Name: name}
	for _, r := range forwardedResources() {
		eventually(t, patient, func(ctx context.Context) error {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(r.GroupVersionKind)
			return c.broker.Client.Get(ctx, atBroker, o)
		})
	}
	return atBroker.Namespace
}

// reads returns the paths to read a resource in a namespace: get by the name of an existing object, list and watch.
func (c *chain) reads(t *testing.T, r served, namespace string) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.GroupVersionKind)
	require.NoError(t, c.broker.Client.List(t.Context(), list, client.InNamespace(namespace)))
	require.NotEmpty(t, list.Items, "%s in %s", r.plural, namespace)
	path := r.in(namespace)
	return []string{path + "/" + list.Items[0].GetName(), path, path + "?watch=true&timeoutSeconds=1"}
}

func getPath(ctx context.Context, as rest.Interface, path string) error {
	return as.Get().RequestURI(path).Do(ctx).Error()
}
