package deploy

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// right returns a rule with one verb on one resource.
func right(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

func granted(t *testing.T, objects []*unstructured.Unstructured, needed rbacv1.PolicyRule) bool {
	t.Helper()
	covered, _ := validation.Covers(brokerRules(t, objects), []rbacv1.PolicyRule{needed})
	return covered
}

// brokerRules returns the broker's cluster-wide rules: from its role, and from the role that comes with the guard.
func brokerRules(t *testing.T, objects []*unstructured.Unstructured) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, name := range []string{"liqo-broker-vk", guardRole} {
		rules = append(rules, find[rbacv1.ClusterRole](t, objects, "ClusterRole", name).Rules...)
	}
	return rules
}

const guardRole = "liqo-broker-vk-guard"

// check finds the permissions that a policy asks the authorizer for.
var check = regexp.MustCompile(`authorizer\.group\('([^']*)'\)\.resource\('([^']*)'\)(?:\.subresource\('([^']*)'\))?[^&|]*?\.check\('([^']*)'\)`)

// The rights are in the same file as the policies, so the order of an upgrade does not matter. Audit logs do not show
// these checks, because the API server performs them itself.
func TestTheGuardGrantsWhatItsPoliciesAskFor(t *testing.T) {
	text, err := os.ReadFile("../../deploy/guard.yaml")
	require.NoError(t, err)
	objects, err := parse(string(text))
	require.NoError(t, err)
	binding := find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "liqo-broker-guard")
	require.Equal(t, guardRole, binding.RoleRef.Name)
	require.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: "liqo-broker"}}, binding.Subjects)
	rules := find[rbacv1.ClusterRole](t, objects, "ClusterRole", guardRole).Rules
	asked, used := 0, map[string]bool{}
	for _, name := range guardPolicies(t) {
		policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy", name)
		for _, v := range policy.Spec.Validations {
			questions := check.FindAllStringSubmatch(v.Expression, -1)
			if len(questions) == 0 {
				continue
			}
			asked++
			// An expression may have further checks, by which other users are admitted.
			assert.True(t, slices.ContainsFunc(questions, func(found []string) bool {
				resource := found[2]
				if found[3] != "" {
					resource += "/" + found[3]
				}
				covered, _ := validation.Covers(rules, []rbacv1.PolicyRule{right(found[4], found[1], resource)})
				used[resource] = used[resource] || covered
				return covered
			}), "%s: %s", name, v.Expression)
		}
	}
	require.Equal(t, 5, asked, "how large a pod may be, where it runs, who assigns it, what a consumer is granted, and who is cordoned")
	require.Len(t, used, len(rules), "no rule that no policy asks for")
}

// Rights that are used only in failures, or with API servers that are configured differently from the sandbox's.
func TestTheBrokerHasTheRightsThatItRarelyNeeds(t *testing.T) {
	// The admission plugin OwnerReferencesPermissionEnforcement requires that a user that changes the owners of an
	// object may delete it (plugin/pkg/admission/gc in Kubernetes).
	for name, needed := range map[string]rbacv1.PolicyRule{
		"another owner of the Node":                  right("delete", "", "nodes", "liqo-broker"),
		"other owners of the IP of an endpoint":      right("delete", "ipam.liqo.io", "ips"),
		"the owner of a NamespaceOffloading, again":  right("delete", "offloading.liqo.io", "namespaceoffloadings", "offloading"),
		"whether a patch was written, after all":     right("get", "", "pods"),
		"the Node, after it was deleted":             right("create", "", "nodes"),
		"the lease of the Node, after a conflict":    right("get", "coordination.k8s.io", "leases"),
		"the end of a pod that no provider ever had": right("delete", "", "pods"),
	} {
		assert.True(t, granted(t, rendered(t, All), needed), name)
	}
	require.False(t, granted(t, rendered(t, All), right("delete", "", "nodes")), "no other Node")
}
