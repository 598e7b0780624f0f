package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// own lists the resources that Liqo's roles let a consumer write: the identity of a slice in the namespaces that were
// created for it, the identity of its control plane in its tenant namespace (liqo-virtual-kubelet-remote and
// liqo-remote-controlplane of Liqo v1.2.0).
var own = map[authv1beta1.IdentityType][]string{
	authv1beta1.ResourceSliceIdentityType: {
		"configmaps", "events", "persistentvolumeclaims", "secrets", "services", "ingresses", "shadowpods", "shadowendpointslices",
		"pods/attach", "pods/exec", "pods/portforward",
	},
	authv1beta1.ControlPlaneIdentityType: {
		"resourceslices", "resourceslices/status", "renews", "renews/status", "namespacemaps", "namespacemaps/status",
	},
}

// reviews are the requests by which every client may query its own rights.
var reviews = []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}

// writes returns the requests that change a resource in a namespace, or a cluster-scoped one, with their methods.
func writes(r *metav1.APIResource, group schema.GroupVersion, namespace string) map[string][]string {
	collection := served{group.WithKind(r.Kind), ""}.root()
	if r.Namespaced {
		collection += "/namespaces/" + namespace
	}
	name, sub, isSub := strings.Cut(r.Name, "/")
	collection += "/" + name
	item := collection + "/anything"
	if isSub {
		item += "/" + sub
	}
	paths := map[string][]string{}
	for verb, method := range map[string]string{"update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete} {
		if slices.Contains(r.Verbs, verb) {
			paths[item] = append(paths[item], method)
		}
	}
	if slices.Contains(r.Verbs, "create") {
		at := collection
		if isSub {
			at = item
		}
		paths[at] = append(paths[at], http.MethodPost)
	}
	if slices.Contains(r.Verbs, "deletecollection") {
		paths[collection] = append(paths[collection], http.MethodDelete)
	}
	return paths
}

// writesNothing checks that a consumer, with any of its identities, can change in the broker's cluster only the
// resources that Liqo's roles name, in its own namespaces: no other object and no other subresource of any API that is
// served there. The API server authorises a request before it reads the body, so the objects need not exist.
// TestStockConsumer tests the further restrictions of the guard.
func (c *chain) writesNothing(t *testing.T) {
	attacker, victim := c.consumers[0], c.consumers[1]
	mine, theirs := attacker.RemoteNamespace(c.offload(t, attacker)), victim.RemoteNamespace(c.offload(t, victim))
	homes := map[authv1beta1.IdentityType]string{
		authv1beta1.ResourceSliceIdentityType: mine, authv1beta1.ControlPlaneIdentityType: "liqo-tenant-" + attacker.Name,
	}
	namespaces := []string{
		mine, "liqo-tenant-" + attacker.Name, theirs, "liqo-tenant-" + victim.Name, "liqo-tenant-" + sandbox.Provider(1),
		"liqo", "kube-system",
	}
	_, all, err := c.broker.Kube.Discovery().ServerGroupsAndResources()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for kind, home := range homes {
		identity := newClient(t, identityOf(t, attacker, kind)).Discovery().RESTClient()
		var group errgroup.Group
		group.SetLimit(8)
		refused := 0
		for _, list := range all {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			require.NoError(t, err)
			for i := range list.APIResources {
				r := &list.APIResources[i]
				in := namespaces
				switch {
				case slices.Contains(reviews, r.Name):
					continue
				case !r.Namespaced:
					in = []string{""}
				}
				for _, namespace := range in {
					if namespace == home && slices.Contains(own[kind], r.Name) {
						continue
					}
					for path, methods := range writes(r, version, namespace) {
						for _, method := range methods {
							refused++
							group.Go(func() error { return forbidden(t.Context(), identity, method, path) })
						}
					}
				}
			}
		}
		assert.NoError(t, group.Wait(), "%s", kind)
		t.Logf("%s: %d writes are refused", kind, refused)
	}

	// A permitted request shows that the paths are right.
	slice := newClient(t, identityOf(t, attacker, authv1beta1.ResourceSliceIdentityType)).Discovery().RESTClient()
	err = slice.Post().RequestURI("/api/v1/namespaces/" + mine + "/configmaps").Body([]byte("{}")).Do(t.Context()).Error()
	assert.True(t, kerrors.IsInvalid(err) || kerrors.IsBadRequest(err), "it may write ConfigMaps of its own: %v", err)
}

// forbidden returns nil if the API server forbids a request to an identity.
func forbidden(ctx context.Context, as rest.Interface, method, path string) error {
	err := as.Verb(method).RequestURI(path).SetHeader("Content-Type", "application/merge-patch+json").Body([]byte("{}")).Do(ctx).Error()
	if !kerrors.IsForbidden(err) {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}
