package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Grant is one verb on one resource that a role of the project allows to an account.
type Grant struct {
	// User is the account, as RBAC names it. The grant is for one Namespace, or for all of them if that is "".
	User, Namespace string
	// Role is the name of the ClusterRole or Role.
	Role string
	// Rule has one verb, one resource and at most one name.
	Rule rbacv1.PolicyRule
}

func (g *Grant) String() string {
	where := "everywhere"
	if g.Namespace != "" {
		where = "in namespace " + g.Namespace
	}
	return fmt.Sprintf("role %s: %s %s", g.Role, describe(&g.Rule), where)
}

// describe describes a rule with one verb and one resource or path.
func describe(rule *rbacv1.PolicyRule) string {
	words := slices.Concat(rule.Verbs, rule.Resources, rule.NonResourceURLs)
	if len(rule.APIGroups) > 0 && rule.APIGroups[0] != "" {
		words[len(words)-1] += "." + rule.APIGroups[0]
	}
	return strings.Join(append(words, rule.ResourceNames...), " ")
}

// Uses reports whether a request needed this grant or a similar one. A list counts as part of a watch: client-go's
// reflectors list if the API server does not send the initial objects in the watch (feature WatchList of Kubernetes).
func (g *Grant) Uses(r *Request) bool {
	if r.User != g.User || r.Forbidden || g.Namespace != "" && g.Namespace != r.Namespace {
		return false
	}
	needed := r.Rule
	if slices.Contains(g.Rule.Verbs, "list") && slices.Contains(needed.Verbs, "watch") {
		needed.Verbs = []string{"list"}
	}
	covered, _ := validation.Covers([]rbacv1.PolicyRule{g.Rule}, []rbacv1.PolicyRule{needed})
	return covered
}

// ofKubernetes is the label of the roles that Kubernetes itself creates
// (plugin/pkg/auth/authorizer/rbac/bootstrappolicy in its sources).
const ofKubernetes = "kubernetes.io/bootstrapping"

// Grants returns the grants of a ServiceAccount from all roles bound to it, except for the roles of Kubernetes itself.
func Grants(ctx context.Context, c client.Reader, account types.NamespacedName) ([]Grant, error) {
	var everywhere rbacv1.ClusterRoleBindingList
	if err := c.List(ctx, &everywhere); err != nil {
		return nil, err
	}
	var somewhere rbacv1.RoleBindingList
	if err := c.List(ctx, &somewhere); err != nil {
		return nil, err
	}
	var all []Grant
	add := func(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) error {
		if !slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == account.Namespace && s.Name == account.Name
		}) {
			return nil
		}
		rules, err := rulesOf(ctx, c, namespace, ref)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			for _, single := range validation.BreakdownRule(rule) {
				user := serviceaccount.MakeUsername(account.Namespace, account.Name)
				all = append(all, Grant{User: user, Namespace: namespace, Role: ref.Name, Rule: single})
			}
		}
		return nil
	}
	for i := range everywhere.Items {
		if err := add("", everywhere.Items[i].RoleRef, everywhere.Items[i].Subjects); err != nil {
			return nil, err
		}
	}
	for i := range somewhere.Items {
		if err := add(somewhere.Items[i].Namespace, somewhere.Items[i].RoleRef, somewhere.Items[i].Subjects); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// rulesOf returns no rules for the roles of Kubernetes itself.
func rulesOf(ctx context.Context, c client.Reader, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	var labels map[string]string
	var rules []rbacv1.PolicyRule
	if ref.Kind == "ClusterRole" {
		var role rbacv1.ClusterRole
		if err := c.Get(ctx, client.ObjectKey{Name: ref.Name}, &role); err != nil {
			return nil, fmt.Errorf("cluster role %s: %w", ref.Name, err)
		}
		labels, rules = role.Labels, role.Rules
	} else {
		var role rbacv1.Role
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &role); err != nil {
			return nil, fmt.Errorf("role %s/%s: %w", namespace, ref.Name, err)
		}
		labels, rules = role.Labels, role.Rules
	}
	if labels[ofKubernetes] != "" {
		return nil, nil
	}
	return rules, nil
}
