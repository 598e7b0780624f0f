package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	defaults "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"sigs.k8s.io/yaml"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources/quantity"
)

// Namespaces of a consumer, and the users that write there.
const (
	tenantNamespace = "liqo-tenant-c1"
	arrived         = "early-c1"
	offloaded       = "shop-c1"
	elsewhere       = "elsewhere"
	theConsumer     = "c1"
	theKubelet      = "a consumer's virtual kubelet"
	thePeeringUser  = "who peers a consumer"
	theBroker       = "the broker"
	liqo            = "Liqo"
	theReplicator   = "Liqo's replicator"
)

// moduleDir returns the directory with the sources of a module.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(dir))
}

// liqoRole returns the rules of one of Liqo's ClusterRoles.
func liqoRole(t *testing.T, name string) []rbacv1.PolicyRule {
	t.Helper()
	dir := moduleDir(t, "github.com/liqotech/liqo")
	text, err := os.ReadFile(filepath.Join(dir, "deployments", "liqo", "files", name+"-ClusterRole.yaml"))
	require.NoError(t, err)
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.Unmarshal(text, &role))
	require.NotEmpty(t, role.Rules)
	return role.Rules
}

// rights are the permissions of users in all namespaces, and in the consumer's namespace.
type rights struct {
	everywhere, there map[string][]rbacv1.PolicyRule
}

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name := a.GetUser().GetName()
	if rbac.RulesAllow(a, r.everywhere[name]...) || a.GetNamespace() == tenantNamespace && rbac.RulesAllow(a, r.there[name]...) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// groups are the groups in the certificates that peering gives to a consumer: to its control plane, to the user that
// peers it, and to its virtual kubelet.
var groups = map[string][]string{
	theConsumer: {"liqo.io"}, thePeeringUser: {"liqo.io"}, theKubelet: {"c1"},
}

// namespaces returns a tenant namespace, a namespace that was created for that consumer, an offloaded one, and one
// without a consumer.
func namespaces() []runtime.Object {
	named := func(name string, labels map[string]string) runtime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	return []runtime.Object{
		named(tenantNamespace, map[string]string{"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "c1"}),
		named(arrived, map[string]string{"liqo.io/remote-cluster-id": "c1"}),
		named(offloaded, map[string]string{"liqo.io/remote-cluster-id": "c1", "liqo.io/scheduling-enabled": "true"}),
		named(elsewhere, nil),
	}
}

// guard returns Kubernetes' admission plugin with the policies of deploy/, without an API server.
func guard(t *testing.T) *validating.Plugin {
	t.Helper()
	return guardOf(t, rendered(t, All))
}

// guardWith returns it with the policies that the chart renders with one value.
func guardWith(t *testing.T, key string, value any) *validating.Plugin {
	t.Helper()
	values := Values(All)
	values["guard"] = map[string]any{key: value}
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	return guardOf(t, objects)
}

// unguarded returns it without some of the policies.
func unguarded(t *testing.T, policies ...string) *validating.Plugin {
	t.Helper()
	objects := rendered(t, All)
	for _, policy := range policies {
		require.True(t, has(objects, "ValidatingAdmissionPolicy", policy), policy)
	}
	return guardOf(t, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return slices.Contains(policies, o.GetName())
	}))
}

func guardOf(t *testing.T, everything []*unstructured.Unstructured) *validating.Plugin {
	t.Helper()
	objects := namespaces()
	for _, o := range everything {
		switch o.GetKind() {
		case "ValidatingAdmissionPolicy":
			policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, everything, o.GetKind(), o.GetName())
			defaults.SetObjectDefaults_ValidatingAdmissionPolicy(policy)
			objects = append(objects, policy)
		case "ValidatingAdmissionPolicyBinding":
			binding := find[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, everything, o.GetKind(), o.GetName())
			defaults.SetObjectDefaults_ValidatingAdmissionPolicyBinding(binding)
			objects = append(objects, binding)
		}
	}
	client := fake.NewSimpleClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	who := rights{
		everywhere: map[string][]rbacv1.PolicyRule{
			theBroker:     brokerRules(t, everything),
			liqo:          liqoRole(t, "liqo-controller-manager"),
			theReplicator: liqoRole(t, "liqo-crd-replicator"),
		},
		there: map[string][]rbacv1.PolicyRule{
			theConsumer: liqoRole(t, "liqo-remote-controlplane"), thePeeringUser: liqoRole(t, "liqo-peering-user-tenant-ns"),
		},
	}
	plugin := validating.NewPlugin(nil)
	initializer.New(client, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), factory, who, nil, nil, t.Context().Done(),
		meta.NewDefaultRESTMapper(nil)).Initialize(plugin)
	require.NoError(t, plugin.ValidateInitialization())
	factory.Start(t.Context().Done())
	require.True(t, plugin.WaitForReady())
	return plugin
}

// write returns the answer of admission to the write of an object by a user. With old nil it is a creation.
func write(t *testing.T, plugin *validating.Plugin, who string, resource schema.GroupVersionResource, subresource string,
	old, o *unstructured.Unstructured,
) error {
	t.Helper()
	operation, options, before := admission.Create, runtime.Object(&metav1.CreateOptions{}), runtime.Object(nil)
	if old != nil {
		operation, options, before = admission.Update, &metav1.UpdateOptions{}, old
	}
	attributes := admission.NewAttributesRecord(o, before, o.GroupVersionKind(), o.GetNamespace(), o.GetName(),
		resource, subresource, operation, options, false, &user.DefaultInfo{Name: who, Groups: groups[who]})
	return plugin.Validate(t.Context(), attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
}

// remove returns the answer of admission to the deletion of an object by a user.
func remove(t *testing.T, plugin *validating.Plugin, who string, resource schema.GroupVersionResource, o *unstructured.Unstructured,
	options metav1.DeleteOptions,
) error {
	t.Helper()
	attributes := admission.NewAttributesRecord(nil, o, o.GroupVersionKind(), o.GetNamespace(), o.GetName(), resource, "",
		admission.Delete, &options, false, &user.DefaultInfo{Name: who, Groups: groups[who]})
	return plugin.Validate(t.Context(), attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
}

// requireRefusal requires an error that contains because, or no error if because is empty.
func requireRefusal(t *testing.T, err error, because string) {
	t.Helper()
	if because == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, because)
	require.NotContains(t, err.Error(), "resulted in error", "the policy refuses; its evaluation does not fail")
}

var sliceVersion = schema.GroupVersion{Group: "authentication.liqo.io", Version: "v1beta1"}

// replicated returns the labels of an object that the consumer's replicator writes in the broker's cluster
// (mutateLabelsForRemote in internal/crdReplicator/reflection/handler.go of Liqo v1.2.0).
func replicated() map[string]any {
	return map[string]any{
		"liqo.io/replication": "false", "liqo.io/replicated": "true", "liqo.io/originID": "c1",
		"liqo.io/remote-cluster-id": "c1", "liqo.io/remoteID": "broker",
	}
}

// slice returns a ResourceSlice as its replica in the broker's cluster.
func slice(changes ...func(o map[string]any)) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": sliceVersion.String(), "kind": "ResourceSlice",
		"metadata": map[string]any{
			"name": "s", "namespace": tenantNamespace,
			"labels": replicated(),
		},
		"spec": map[string]any{
			"class": "broker", "consumerClusterID": "c1", "csr": honest(), "resources": map[string]any{"cpu": "4", "pods": int64(10)},
		},
	}
	for _, change := range changes {
		change(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// set sets a field, or removes it if value is nil.
func set(value any, path ...string) func(map[string]any) {
	return func(o map[string]any) {
		if value == nil {
			unstructured.RemoveNestedField(o, path...)
			return
		}
		if err := unstructured.SetNestedField(o, runtime.DeepCopyJSONValue(value), path...); err != nil {
			panic(err)
		}
	}
}

func condition(kind, status string) map[string]any {
	return map[string]any{"type": kind, "status": status, "lastTransitionTime": "2026-03-01T00:00:00Z"}
}

// conditions sets the conditions of a slice.
func conditions(all ...map[string]any) func(map[string]any) {
	list := make([]any, len(all))
	for i := range all {
		list[i] = all[i]
	}
	return set(list, "status", "conditions")
}

// granting grants cpu to a slice.
func granting(cpu string) func(map[string]any) {
	return func(o map[string]any) {
		set(cpu, "status", "resources", "cpu")(o)
		conditions(condition("Authentication", "Accepted"), condition("Resources", "Accepted"))(o)
	}
}

// ask returns the answer of admission to the write of a slice by a user. With old nil it is a creation.
func ask(t *testing.T, plugin *validating.Plugin, who, subresource string, old, o *unstructured.Unstructured) error {
	t.Helper()
	return write(t, plugin, who, sliceVersion.WithResource("resourceslices"), subresource, old, o)
}

func TestOnlyTheBrokerGrants(t *testing.T) {
	plugin := unguarded(t, "liqo-broker-classes", "liqo-broker-slices") // These reject some of this, too.
	const refused = "only the broker may decide what a ResourceSlice is granted"
	otherClass, own := set("default", "spec", "class"), set(nil, "metadata", "labels")
	for name, tc := range map[string]struct {
		who, subresource string
		old, new         *unstructured.Unstructured
		// because is part of the rejection's message; "" if the write is admitted.
		because string
	}{
		"a consumer asks": {theConsumer, "", nil, slice(), ""},
		"asks for more": {
			theConsumer, "", slice(granting("4")), slice(granting("4"), set("8", "spec", "resources", "cpu")), "",
		},
		"accepts its own certificate": {
			theConsumer, "status", slice(), slice(conditions(condition("Authentication", "Accepted"))), "",
		},
		"deletes what it has": {
			theConsumer, "", slice(granting("4")), slice(granting("4"), set([]any{}, "metadata", "finalizers")), "",
		},
		"grants itself something": {theConsumer, "status", slice(), slice(granting("4")), refused},
		"resources alone": {
			theConsumer, "status", slice(), slice(set("4", "status", "resources", "cpu")), refused,
		},
		"the condition alone": {
			theConsumer, "status", slice(), slice(conditions(condition("Resources", "Accepted"))), refused,
		},
		"more than it was granted": {theConsumer, "status", slice(granting("4")), slice(granting("400")), refused},
		"something under another name": {
			theConsumer, "status", slice(granting("4")), slice(granting("4"), set("1", "status", "resources", "nvidia.com/gpu")), refused,
		},
		"a longer time since": {
			theConsumer, "status", slice(granting("4")),
			slice(granting("4"), conditions(condition("Authentication", "Accepted"), map[string]any{
				"type": "Resources", "status": "Accepted", "lastTransitionTime": "2000-01-01T00:00:00Z",
			})),
			refused,
		},
		"another condition of the type": {
			theConsumer, "status", slice(granting("4")),
			slice(granting("4"), conditions(condition("Resources", "Denied"), condition("Resources", "Accepted"))), refused,
		},
		"denies itself, to be granted anew": {
			theConsumer, "status", slice(granting("4")), slice(granting("4"), conditions(condition("Resources", "Denied"))), refused,
		},
		"takes the condition away": {
			theConsumer, "status", slice(granting("4")), slice(granting("4"), conditions()), refused,
		},
		"creates it with a status": {theConsumer, "", nil, slice(granting("4")), refused},
		"writes what Liqo decides": {theConsumer, "status", slice(otherClass), slice(otherClass, granting("400")), ""},
		"of no class": {
			theConsumer, "status", slice(set(nil, "spec", "class")), slice(set(nil, "spec", "class"), granting("400")), "",
		},
		"and changes to the broker's class": {
			theConsumer, "", slice(otherClass, granting("400")), slice(granting("400")), refused,
		},
		"of any name": {
			theConsumer, "", slice(otherClass, granting("400")), slice(granting("400"), set("pool", "spec", "class")), refused,
		},
		"changes the class before it was granted": {theConsumer, "", slice(otherClass), slice(), ""},
		"leaves with what it has":                 {theConsumer, "", slice(granting("4")), slice(otherClass, granting("4")), refused},
		"removes the label that it is replicated": {theConsumer, "", slice(granting("4")), slice(own, granting("4")), refused},
		"adds that label later":                   {theConsumer, "", slice(own, granting("400")), slice(granting("400")), refused},
		"changes its consumer": {
			theConsumer, "", slice(granting("4")), slice(granting("4"), set("c2", "spec", "consumerClusterID")), refused,
		},
		"removes its origin": {
			theConsumer, "", slice(granting("4")), slice(granting("4"), set(nil, "metadata", "labels", "liqo.io/originID")), refused,
		},
		"who may change Tenants of one namespace does": {thePeeringUser, "status", slice(), slice(granting("4")), refused},
		"the broker grants":                            {theBroker, "status", slice(), slice(granting("4")), ""},
		"grants less":                                  {theBroker, "status", slice(granting("4")), slice(granting("1")), ""},
		"Liqo signs a certificate": {
			liqo, "status", slice(granting("4")), slice(granting("4"), set("eA==", "status", "authParams", "signedCRT")), "",
		},
		"Liqo denies a tenant that is drained": {
			liqo, "status", slice(granting("4")), slice(granting("4"), conditions(condition("Resources", "Denied"))), "",
		},
		"what a provider grants this cluster": {theReplicator, "status", slice(own), slice(own, granting("4")), ""},
		"but nothing to consumers":            {theReplicator, "status", slice(), slice(granting("4")), refused},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, ask(t, plugin, tc.who, tc.subresource, tc.old, tc.new), tc.because)
		})
	}
}

func TestQuantitiesThatTakeForeverAreRefused(t *testing.T) {
	plugin := unguarded(t, "liqo-broker-classes")
	for amount, accepted := range map[any]bool{
		int64(1): true, int64(1<<63 - 1): true, "1": true, "1500m": true, "+2Gi": true, "-1.5Ei": true, "1E": true, "1e9": true,
		"1E-99": true, strings.Repeat("9", 30): true,
		"1e-2000000000": false, "1E2000000000": false, "1e100": false, "1e+1000000000.5": false, strings.Repeat("9", 31): false,
		"1e-" + strings.Repeat("0", 1<<20) + "1": false,
	} {
		for where, path := range map[string][]string{"": {"spec"}, "status": {"status"}} {
			wrote := slice(set("default", "spec", "class"), set(amount, append(path, "resources", "memory")...))
			var err error
			if where == "" {
				err = ask(t, plugin, theConsumer, where, nil, wrote)
			} else {
				err = ask(t, plugin, theReplicator, where, slice(set("default", "spec", "class")), wrote)
			}
			text := fmt.Sprint(amount)
			shown := text[:min(40, len(text))]
			if !accepted {
				require.ErrorContains(t, err, "the quantity of memory may have 30 digits, and two more in its exponent", shown)
				continue
			}
			require.NoError(t, err, shown)
			_, err = quantity.Parse(text)
			require.NoError(t, err, shown)
		}
	}
}

// named returns that many resources.
func named(count int, quantity string) map[string]any {
	all := make(map[string]any, count)
	for i := range count {
		all[fmt.Sprint("example.org/", i)] = quantity
	}
	return all
}

func TestSlicesHaveABoundedNumberOfResources(t *testing.T) {
	plugin := guard(t)
	resources := func(all map[string]any) func(map[string]any) { return set(all, "spec", "resources") }
	for name, tc := range map[string]struct {
		old, new *unstructured.Unstructured
		because  string
	}{
		"as many as there may be":              {nil, slice(resources(named(200, "1"))), ""},
		"of the longest names":                 {nil, slice(resources(map[string]any{strings.Repeat("a", 317): "1"})), ""},
		"of longer ones":                       {nil, slice(resources(map[string]any{strings.Repeat("a", 318): "1"})), "317 characters"},
		"one more":                             {nil, slice(resources(named(201, "1"))), "may name 200 resources"},
		"far more":                             {nil, slice(resources(named(50_000, "1"))), "may name 200 resources"},
		"that would take forever to read, too": {nil, slice(resources(named(50_000, "1e1000000000"))), "may name 200 resources"},
		"200 that would":                       {nil, slice(resources(named(200, "1e1000000000"))), "may have 30 digits"},
		"what is there may be deleted": {
			slice(resources(named(50_000, "1"))), slice(resources(named(50_000, "1")), set([]any{}, "metadata", "finalizers")), "",
		},
		"even if it takes forever": {
			slice(resources(named(200, "1e1000000000"))),
			slice(resources(named(200, "1e1000000000")), set([]any{}, "metadata", "finalizers")), "",
		},
		"and be made less": {slice(resources(named(201, "1"))), slice(resources(named(200, "1"))), ""},
		"but not be changed and still too many": {
			slice(resources(named(202, "1"))), slice(resources(named(201, "1"))), "may name 200 resources",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := ask(t, plugin, theConsumer, "", tc.old, tc.new)
			if tc.because == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.because)
		})
	}
	granted := slice(set(named(201, "1"), "status", "resources"))
	require.ErrorContains(t, ask(t, plugin, theBroker, "status", slice(), granted), "may name 200 resources")
}
