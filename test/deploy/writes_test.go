package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// party is an identity of a peer in the broker's cluster, and the role that Liqo binds to it.
type party struct {
	title, role, where string
	// bounds answers three questions for each resource that it may write: how large an object is, how many there are,
	// and which resources of this cluster they use.
	bounds map[string]bound
}

type bound struct{ large, many, cost string }

// parties returns all identities to which Liqo gives write access. The test fails for a resource that a role has and
// that is missing here: the change that adds it must answer the three questions.
func parties() []party {
	const (
		bySpec       = "16 KiB of annotations; "
		unbounded    = "not bounded; [a quota](install.md#bound-the-number-of-objects-of-a-consumer)"
		byQuota      = "quota of Liqo, where pods are in it"
		etcd, caches = "etcd", "etcd, the caches of the broker and of the catalog"
	)
	return []party{
		{"The control plane of a consumer", "liqo-remote-controlplane", "its tenant namespace", map[string]bound{
			"resourceslices": {
				bySpec + "a request of 8,192 characters, 200 resources, a class of 256 characters", unbounded,
				caches + "; a certificate and a decision of the offers for each",
			},
			"resourceslices/status": {"refused", "", ""},
			"renews":                {bySpec + "a request of 8,192 characters", unbounded, etcd + "; a certificate for each"},
			"renews/status":         {"refused", "", ""},
			"namespacemaps": {
				bySpec + "2,000 namespaces with names of 127 characters", unbounded, caches + "; a namespace for each entry",
			},
			"namespacemaps/status": {"refused", "", ""},
		}},
		{"The user that peers a consumer", "liqo-peering-user-tenant-ns", "its tenant namespace", map[string]bound{
			"secrets": {"no data; 256 KiB of annotations", unbounded, etcd},
			"tenants": {bySpec + "fields of 8,192 characters", unbounded, "etcd, the cache of the broker; a certificate for each"},
			"ips":     {"refused", "", ""},
			"configurations": {
				"64 KiB of annotations; 100 CIDRs of each cluster", unbounded, "etcd, the cache of the broker; rules of gateways",
			},
			"gatewayclients": {"64 KiB of annotations; 1.5 MiB in all", unbounded, etcd + "; a gateway for each, and a Service"},
			"gatewayservers": {"64 KiB of annotations; 1.5 MiB in all", unbounded, etcd + "; a gateway for each, and a Service"},
			"publickeies":    {"64 KiB of annotations; 1.5 MiB in all", unbounded, etcd},
		}},
		{"The virtual kubelet of a consumer", "liqo-virtual-kubelet-remote", "the namespaces that were made for it", map[string]bound{
			"configmaps": {"1 MiB of data, 256 KiB of annotations (Kubernetes)", unbounded, etcd},
			"secrets":    {"1 MiB of data, 256 KiB of annotations (Kubernetes)", unbounded, etcd},
			"events":     {"refused", "", ""},
			"persistentvolumeclaims": {
				"of the classes that the broker offers, without `guard.volumes`; 64 KiB of annotations", unbounded,
				"a PersistentVolume here and a disk at a provider for each; disks of this cluster, with `guard.volumes`",
			},
			"services": {"64 KiB of annotations", unbounded, etcd + "; ports of nodes and load balancers"},
			"ingresses": {
				"refused, without `guard.ingresses`; 64 KiB of annotations", unbounded, "hosts of this cluster, with `guard.ingresses`",
			},
			"shadowpods": {
				"256 KiB of variables, commands, arguments and four times the annotations; 100 containers, 500 volumes; 1.5 MiB in all",
				byQuota, caches + "; a pod for each, here and at a provider",
			},
			"shadowendpointslices": {
				"64 KiB of annotations; 1,000 endpoints with 2 addresses", unbounded,
				"etcd, the cache of the broker; an EndpointSlice for each, and 1,000 IPs of a namespace",
			},
			"pods/attach": {
				"a stream", "half of the streams of a provider", "[the kubelet API](#an-unauthenticated-client-on-the-network)",
			},
			"pods/exec": {
				"a stream", "half of the streams of a provider", "[the kubelet API](#an-unauthenticated-client-on-the-network)",
			},
			"pods/portforward": {
				"a stream", "half of the streams of a provider", "[the kubelet API](#an-unauthenticated-client-on-the-network)",
			},
		}},
	}
}

// operations maps verbs to the operations of admission.
var operations = map[string]admissionregistrationv1.OperationType{
	"create": admissionregistrationv1.Create, "update": admissionregistrationv1.Update, "patch": admissionregistrationv1.Update,
	"delete": admissionregistrationv1.Delete, "deletecollection": admissionregistrationv1.Delete,
}

// policiesFor returns the policies that match an operation on a resource, without their common prefix.
func policiesFor(t *testing.T, group, resource string, operation admissionregistrationv1.OperationType) []string {
	t.Helper()
	objects := rendered(t, All)
	var names []string
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, o.GetKind(), o.GetName())
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			if slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) &&
				slices.Contains(rule.Operations, operation) {
				names = append(names, strings.TrimPrefix(policy.Name, "liqo-broker-"))
				break
			}
		}
	}
	slices.Sort(names)
	return names
}

// verbsOf returns the resources of a role, their groups, and the verbs that write them.
func verbsOf(rules []rbacv1.PolicyRule) (resources []string, verbs map[string][]string, groups map[string]string) {
	verbs, groups = map[string][]string{}, map[string]string{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if _, writes := operations[verb]; !writes {
					continue
				}
				if len(verbs[resource]) == 0 {
					resources = append(resources, resource)
				}
				verbs[resource], groups[resource] = append(verbs[resource], verb), rule.APIGroups[0]
			}
		}
	}
	slices.Sort(resources)
	return resources, verbs, groups
}

// A change that adds a right or removes a policy must state here what bounds the written objects.
func TestEachWriteOfAPeerHasItsBound(t *testing.T) {
	const begin, end = "<!-- written by go test ./deploy/ with UPDATE=1 -->\n", "<!-- end -->\n"
	var table strings.Builder
	for _, p := range parties() {
		fmt.Fprintf(&table, "\n**%s**, in %s (Liqo's ClusterRole `%s`):\n\n", p.title, p.where, p.role)
		table.WriteString("| resource | verbs | policies for writes | for deletions | how large | how many | what it costs |\n")
		table.WriteString("|---|---|---|---|---|---|---|\n")
		resources, verbs, groups := verbsOf(liqoRole(t, p.role))
		for _, resource := range resources {
			b, known := p.bounds[resource]
			require.True(t, known, "%s may write %s: how large, how many, and what does it cost?", p.title, resource)
			writes := policiesFor(t, groups[resource], resource, admissionregistrationv1.Create)
			if b.large == "refused" {
				require.NotEmpty(t, writes, resource)
			}
			var deletions []string
			if slices.Contains(verbs[resource], "delete") {
				deletions = policiesFor(t, groups[resource], resource, admissionregistrationv1.Delete)
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s | %s |\n", resource, strings.Join(verbs[resource], ", "),
				strings.Join(writes, ", "), strings.Join(deletions, ", "), b.large, b.many, b.cost)
		}
		require.Len(t, p.bounds, len(resources), "%s: what it may not write any more", p.title)
	}
	const file = "../../docs/security.md"
	document, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(document), begin)
	require.True(t, found)
	written, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+table.String()+"\n"+end+after), 0o600))
		return
	}
	require.Equal(t, table.String()+"\n", written, "run UPDATE=1 go test ./deploy/ -run %s in test/", t.Name())
}
