package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// events are shortened events of an API server of Kubernetes 1.35.
const events = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/pods?watch=true","verb":"watch","user":{"username":"system:serviceaccount:b:broker"},"objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/nodes/broker/status","verb":"patch","user":{"username":"system:serviceaccount:b:broker"},"objectRef":{"resource":"nodes","name":"broker","apiVersion":"v1","subresource":"status"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/apis/coordination.k8s.io/v1/namespaces/b/leases/broker","verb":"update","user":{"username":"system:serviceaccount:b:broker"},"objectRef":{"resource":"leases","namespace":"b","name":"broker","apiGroup":"coordination.k8s.io","apiVersion":"v1"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/x/secrets/s","verb":"get","user":{"username":"system:serviceaccount:b:broker"},"objectRef":{"resource":"secrets","namespace":"x","name":"s","apiVersion":"v1"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/x/secrets/s","verb":"get","user":{"username":"system:serviceaccount:b:broker"},"objectRef":{"resource":"secrets","namespace":"x","name":"s","apiVersion":"v1"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/version","verb":"get","user":{"username":"system:serviceaccount:b:other"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}}
`

func read(t *testing.T, text string) []Request {
	t.Helper()
	log := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(log, []byte(text), 0o600))
	requests, err := Read(log)
	require.NoError(t, err)
	return requests
}

// The API server continues to write while the log is read.
func TestAnEventThatIsNotWrittenToItsEndDoesNotCount(t *testing.T) {
	require.Len(t, read(t, events+events[:100]), 5)
	require.Empty(t, read(t, events[:100]))
	log := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(log, []byte(events+"no event\n"+events), 0o600))
	_, err := Read(log)
	require.ErrorContains(t, err, log)
}

func TestWhatWasDoneIsComparedWithWhatMayBeDone(t *testing.T) {
	requests := read(t, events)
	require.Len(t, requests, 5, "each kind once")
	require.Equal(t, []string{`get secrets s in namespace "x" by system:serviceaccount:b:broker`}, Forbidden(requests),
		"not what an admission policy refused")

	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	inB := metav1.ObjectMeta{Namespace: "b", Name: "leases"}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "b", Name: "broker"}}
	rule := func(group, resource, name string, verbs ...string) rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
		if name != "" {
			r.ResourceNames = []string{name}
		}
		return r
	}
	builtIn := metav1.ObjectMeta{Name: "built-in", Labels: map[string]string{ofKubernetes: "rbac-defaults"}}
	c := fake.NewClientBuilder().WithObjects(
		&rbacv1.ClusterRole{ObjectMeta: named("broker"), Rules: []rbacv1.PolicyRule{
			rule("", "pods", "", "watch", "list", "delete"), rule("", "nodes/status", "broker", "patch"), rule("", "nodes", "", "patch"),
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: named("broker"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "broker"}, Subjects: subjects,
		},
		&rbacv1.ClusterRole{ObjectMeta: named("others"), Rules: []rbacv1.PolicyRule{rule("", "pods", "", "create")}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("others"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "others"}},
		&rbacv1.Role{ObjectMeta: inB, Rules: []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "", "update", "create")}},
		&rbacv1.RoleBinding{ObjectMeta: inB, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "leases"}, Subjects: subjects},
		&rbacv1.ClusterRole{ObjectMeta: builtIn, Rules: []rbacv1.PolicyRule{rule("", "configmaps", "", "watch")}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "built-in"},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "built-in"}, Subjects: subjects,
		},
	).Build()
	grants, err := Grants(t.Context(), c, types.NamespacedName{Namespace: "b", Name: "broker"})
	require.NoError(t, err)
	var used, unused []string
	for i := range grants {
		list := &unused
		for k := range requests {
			if grants[i].Uses(&requests[k]) {
				list = &used
			}
		}
		*list = append(*list, grants[i].String())
	}
	require.ElementsMatch(t, []string{
		"role broker: watch pods everywhere", "role broker: list pods everywhere", "role broker: patch nodes/status broker everywhere",
		"role leases: update leases.coordination.k8s.io in namespace b",
	}, used)
	require.ElementsMatch(t, []string{
		"role broker: delete pods everywhere", "role broker: patch nodes everywhere",
		"role leases: create leases.coordination.k8s.io in namespace b",
	}, unused)
}
