package deploy

import (
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

// right is a rule of one verb on one resource.
func right(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

func granted(t *testing.T, objects []*unstructured.Unstructured, needed rbacv1.PolicyRule) bool {
	t.Helper()
	rules := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "liqo-broker-vk").Rules
	covered, _ := validation.Covers(rules, []rbacv1.PolicyRule{needed})
	return covered
}

// check finds what a policy asks the authorizer.
var check = regexp.MustCompile(`authorizer\.group\('([^']*)'\)\.resource\('([^']*)'\)(?:\.subresource\('([^']*)'\))?[^&|]*?\.check\('([^']*)'\)`)

// No audit log shows these questions: the API server asks itself.
func TestTheBrokerHasTheRightsThatPoliciesAskFor(t *testing.T) {
	objects := rendered(t, All)
	asked := 0
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, o.GetKind(), o.GetName())
		for _, v := range policy.Spec.Validations {
			questions := check.FindAllStringSubmatch(v.Expression, -1)
			if len(questions) == 0 {
				continue
			}
			asked++
			// What else is asked for is what others are let in by.
			assert.True(t, slices.ContainsFunc(questions, func(found []string) bool {
				resource := found[2]
				if found[3] != "" {
					resource += "/" + found[3]
				}
				return granted(t, objects, right(found[4], found[1], resource))
			}), "%s: %s", o.GetName(), v.Expression)
		}
	}
	require.Equal(t, 4, asked, "where a pod runs, who assigns it, what a consumer is granted, and who is cordoned")
}

// Rights that are used when something goes wrong, or where the API server is set up otherwise than in the sandbox.
func TestTheBrokerHasTheRightsThatItRarelyNeeds(t *testing.T) {
	// The admission plugin OwnerReferencesPermissionEnforcement wants who changes the owners of an object to be able to
	// delete it (plugin/pkg/admission/gc in Kubernetes).
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
