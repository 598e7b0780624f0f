package check

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func typeOf(o any) string {
	name := fmt.Sprintf("%T", o)
	return strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "List")
}

// The files of deploy pass all checks.
func TestACompleteInstallation(t *testing.T) {
	report, err := complete(t).run(t)
	require.NoError(t, err)
	var names []string
	for _, c := range report.Checks {
		require.Equal(t, OK, c.State, "%+v", c)
		require.Empty(t, c.Remedy)
		names = append(names, c.Name)
	}
	require.Equal(t, OK, report.State)
	require.Equal(t, []string{
		"liqo", "crd/providerclusters.brokering.liqo.io", "crd/placementpolicies.brokering.liqo.io",
		"crd/consumerclusters.brokering.liqo.io", "guard", "broker", "version", "node", "virtual-kubelet-options",
		"virtual-kubelet/liqo-tenant-p1/p1", "provider/p1", "credentials/liqo-tenant-p1/resourceslice-p1", "remote-ipam",
		"catalog", "clocks", "rights/get", "rights/explain", "rights/drain-dry-run",
		"rights/drain", "rights/enable-consumer",
	}, names)
}

func notReady(kind, reason, message string) []metav1.Condition {
	return []metav1.Condition{
		{Type: v1alpha1.ProviderReady, Status: metav1.ConditionFalse, Reason: "NotReady", Message: kind + ": " + reason},
		{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message},
	}
}

// faults are the faults of an installation, each with the check that finds it.
func faults() map[string]struct {
	do              func(t *testing.T, c *cluster)
	name            string
	state           State
	message, remedy string
} {
	type fault = struct {
		do              func(t *testing.T, c *cluster)
		name            string
		state           State
		message, remedy string
	}
	return map[string]fault{
		"no Liqo": {
			func(_ *testing.T, c *cluster) {
				c.forbidden["VirtualNode"] = kerrors.NewNotFound(schema.GroupResource{}, "")
				c.forbidden["Identity"], c.forbidden["VkOptionsTemplate"] = c.forbidden["VirtualNode"], c.forbidden["VirtualNode"]
			},
			"liqo", Fail, "does not serve the kinds of Liqo v1", "liqoctl install --version v1.2.0",
		},
		"another Liqo": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-controller-manager").Labels[versionLabel] = "v1.3.0"
			},
			"liqo", Warn, "v1.3.0 is tested in parts", "--version v1.2.0 --namespace liqo",
		},
		"an older Liqo": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-controller-manager").Labels[versionLabel] = "v0.9.4"
			},
			"liqo", Fail, "the broker needs Liqo v1", "helm upgrade liqo",
		},
		"a Liqo that is not known": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-controller-manager").Labels[versionLabel] = "v1.9.0"
			},
			"liqo", Warn, "v1.9.0 is not tested", "helm upgrade liqo",
		},
		"a commit of Liqo": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-controller-manager").Labels[versionLabel] = "abcdef"
			},
			"liqo", Warn, `the version "abcdef" is not a release`, "helm upgrade liqo",
		},
		"Liqo without its labels": {
			func(_ *testing.T, c *cluster) { remove[*appsv1.Deployment](c, "liqo-controller-manager") },
			"liqo", Warn, "the version is not known", "kubectl get deployments -A",
		},
		"a CRD is missing": {
			func(_ *testing.T, c *cluster) {
				remove[*apiextensionsv1.CustomResourceDefinition](c, "placementpolicies.brokering.liqo.io")
			},
			"crd/placementpolicies.brokering.liqo.io", Fail, "does not exist", "--force-conflicts -f deploy/crds",
		},
		"an older CRD": {
			func(_ *testing.T, c *cluster) {
				spec := find[*apiextensionsv1.CustomResourceDefinition](c, "providerclusters.brokering.liqo.io").
					Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
				delete(spec.Properties, "prices")
			},
			"crd/providerclusters.brokering.liqo.io", Fail, "the API server drops .spec.prices", "deploy/crds",
		},
		"an older CRD, deep in a list": {
			func(_ *testing.T, c *cluster) {
				spec := find[*apiextensionsv1.CustomResourceDefinition](c, "providerclusters.brokering.liqo.io").
					Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
				delete(spec.Properties["prices"].Items.Schema.Properties, "perHour")
			},
			"crd/providerclusters.brokering.liqo.io", Fail, "the API server drops .spec.prices[].perHour", "deploy/crds",
		},
		"a newer CRD": {
			func(_ *testing.T, c *cluster) {
				spec := find[*apiextensionsv1.CustomResourceDefinition](c, "providerclusters.brokering.liqo.io").
					Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
				spec.Properties["sooner"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			},
			"crd/providerclusters.brokering.liqo.io", Warn, "does not know .spec.sooner", "kubectl broker version",
		},
		"a CRD with a part that is newer": {
			func(_ *testing.T, c *cluster) {
				schema := find[*apiextensionsv1.CustomResourceDefinition](c, "consumerclusters.brokering.liqo.io").
					Spec.Versions[0].Schema.OpenAPIV3Schema
				schema.Properties["sooner"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
			},
			"crd/consumerclusters.brokering.liqo.io", Warn, "does not know .sooner", "kubectl broker version",
		},
		"a CRD of another version": {
			func(_ *testing.T, c *cluster) {
				find[*apiextensionsv1.CustomResourceDefinition](c, "providerclusters.brokering.liqo.io").Spec.Versions[0].Name = "v1"
			},
			"crd/providerclusters.brokering.liqo.io", Fail, "does not serve the version v1alpha1", "deploy/crds",
		},
		"a CRD that is not established": {
			func(_ *testing.T, c *cluster) {
				crd := find[*apiextensionsv1.CustomResourceDefinition](c, "providerclusters.brokering.liqo.io")
				crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
					Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Message: "its name is taken",
				}}
			},
			"crd/providerclusters.brokering.liqo.io", Fail, "its name is taken", "kubectl describe crd",
		},
		"no guard": {
			func(_ *testing.T, c *cluster) { remove[*admissionv1.ValidatingAdmissionPolicy](c) },
			"guard", Fail, "policy liqo-broker-pods is missing", "kubectl apply --server-side --force-conflicts -f deploy/guard.yaml",
		},
		"a policy of the present guard": {
			func(_ *testing.T, c *cluster) {
				remove[*admissionv1.ValidatingAdmissionPolicyBinding](c, "liqo-broker-deletions")
			},
			"guard", Fail, "policy liqo-broker-deletions has no binding", "deploy/guard.yaml",
		},
		"a guard that is not required": {
			func(_ *testing.T, c *cluster) {
				remove[*admissionv1.ValidatingAdmissionPolicy](c, "liqo-broker-pods")
				c.broker().Containers[0].Args = append(c.broker().Containers[0].Args, "--require-guard=false")
			},
			"guard", Warn, "--require-guard=false", "deploy/guard.yaml",
		},
		"a guard of the chart": {
			func(_ *testing.T, c *cluster) {
				remove[*admissionv1.ValidatingAdmissionPolicy](c, "liqo-broker-pods")
				find[*appsv1.Deployment](c, "liqo-broker").Annotations = map[string]string{
					"meta.helm.sh/release-name": "federation", "meta.helm.sh/release-namespace": "liqo-broker",
				}
			},
			"guard", Fail, "liqo-broker-pods is missing",
			"helm upgrade federation deploy/chart/liqo-broker-vk --namespace liqo-broker --reset-then-reuse-values",
		},
		"Kubernetes before 1.30": {
			func(_ *testing.T, c *cluster) {
				c.forbidden["ValidatingAdmissionPolicy"] = kerrors.NewNotFound(schema.GroupResource{}, "")
			},
			"guard", Fail, "older than Kubernetes 1.30", "kubectl version",
		},
		"no broker": {
			func(_ *testing.T, c *cluster) { remove[*appsv1.Deployment](c, "liqo-broker", "liqo-broker-catalog") },
			"broker", Fail, "no Deployment", "helm install liqo-broker",
		},
		"two brokers": {
			func(_ *testing.T, c *cluster) {
				second := find[*appsv1.Deployment](c, "liqo-broker").DeepCopy()
				second.Namespace = "second"
				c.objects = append(c.objects, second)
			},
			"broker", Fail, "liqo-broker/liqo-broker, second/liqo-broker", "delete deployment",
		},
		"a broker of another node": {
			func(_ *testing.T, c *cluster) { c.broker().Containers[0].Args[1] = "--broker-node=other" },
			"broker", Fail, `it serves the node "other"`, "kubectl broker check --broker-node=other",
		},
		"a broker without replicas": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-broker").Spec.Replicas = ptr.To(int32(0))
			},
			"broker", Fail, "0 replicas", "kubectl -n liqo-broker scale deployment liqo-broker --replicas=2",
		},
		"a broker with a ledger, without replicas": {
			func(_ *testing.T, c *cluster) {
				c.ledger("/var/lib/liqo-broker/ledger.db", ptr.To(corev1.ClaimBound))
				find[*appsv1.Deployment](c, "liqo-broker").Spec.Replicas = ptr.To(int32(0))
			},
			"broker", Fail, "0 replicas", "--replicas=1",
		},
		"a broker that is down": {
			func(_ *testing.T, c *cluster) { find[*appsv1.Deployment](c, "liqo-broker").Status.ReadyReplicas = 0 },
			"broker", Fail, "0/2 replicas", "kubectl -n liqo-broker describe pods",
		},
		"half a broker": {
			func(_ *testing.T, c *cluster) { find[*appsv1.Deployment](c, "liqo-broker").Status.ReadyReplicas = 1 },
			"broker", Warn, "1/2 replicas", "kubectl -n liqo-broker describe pods",
		},
		"a broker that is being upgraded": {
			func(_ *testing.T, c *cluster) { find[*appsv1.Deployment](c, "liqo-broker").Status.UpdatedReplicas = 1 },
			"broker", Warn, "not rolled out", "kubectl -n liqo-broker rollout status deployment/liqo-broker",
		},
		"an older program": {
			func(_ *testing.T, c *cluster) { c.version = "v0.1.0"; c.release("v0.2.0", "v0.2.0") },
			"version", Warn, "this program is v0.1.0, older than the broker, v0.2.0", "kubectl krew upgrade liqo-broker",
		},
		"a newer program": {
			func(_ *testing.T, c *cluster) { c.version = "v0.3.0"; c.release("v0.2.0", "v0.2.0") },
			"version", Warn, "the broker is v0.2.0, older than this program, v0.3.0",
			"kubectl -n liqo-broker set image deployment/liqo-broker broker=liqo-broker-vk:v0.3.0",
		},
		"a newer program than the chart's": {
			func(_ *testing.T, c *cluster) {
				c.version = "v0.3.0"
				c.release("v0.2.0", "v0.2.0")
				find[*appsv1.Deployment](c, "liqo-broker").Annotations = map[string]string{releaseName: "r", releaseNamespace: "ns"}
			},
			"version", Warn, "older than this program", "helm upgrade r deploy/chart/liqo-broker-vk --namespace ns " +
				"--reset-then-reuse-values --set image.digest=,image.tag=v0.3.0",
		},
		"no node": {
			func(_ *testing.T, c *cluster) { remove[*corev1.Node](c) },
			"node", Fail, "liqo-broker does not exist", "kubectl -n liqo-broker logs deployment/liqo-broker",
		},
		"a node that is not Ready": {
			func(_ *testing.T, c *cluster) {
				find[*corev1.Node](c, "liqo-broker").Status.Conditions[0] = corev1.NodeCondition{
					Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "NoProvider", Message: "no provider is Ready",
				}
			},
			"node", Fail, "no provider is Ready", "logs deployment/liqo-broker",
		},
		"a node without conditions": {
			func(_ *testing.T, c *cluster) { find[*corev1.Node](c, "liqo-broker").Status.Conditions = nil },
			"node", Fail, "no condition Ready", "logs deployment/liqo-broker",
		},
		"a cordoned node": {
			func(_ *testing.T, c *cluster) { find[*corev1.Node](c, "liqo-broker").Spec.Unschedulable = true },
			"node", Warn, "cordoned", "kubectl uncordon liqo-broker",
		},
		"Liqo's options": {
			func(_ *testing.T, c *cluster) {
				find[*offloadingv1beta1.VkOptionsTemplate](c, "virtual-kubelet-default").Spec = offloadingv1beta1.VkOptionsTemplateSpec{
					CreateNode: true, ContainerImage: "ghcr.io/liqotech/virtual-kubelet:v1.2.0",
					ExtraArgs: []string{"--enable-apiserver-support=true", "--certificate-type=aws"},
				}
			},
			"virtual-kubelet-options", Fail, "the image ghcr.io/liqotech/virtual-kubelet:v1.2.0 is Liqo's",
			`kubectl -n liqo patch vkoptionstemplate virtual-kubelet-default --type=merge -p '{"spec":{` +
				`"containerImage":"liqo-broker-vk:dev","createNode":false,"extraArgs":` +
				`["--broker-node=liqo-broker","--enable-apiserver-support=false","--certificate-type=aws"]}}'`,
		},
		"no options": {
			func(_ *testing.T, c *cluster) { remove[*offloadingv1beta1.VkOptionsTemplate](c) },
			"virtual-kubelet-options", Fail, "does not exist", "helm upgrade liqo",
		},
		"a virtual kubelet of another node": {
			func(_ *testing.T, c *cluster) { c.kubelet().Args = []string{"--nodename=p1"} },
			"virtual-kubelet/liqo-tenant-p1/p1", Fail, "the argument --broker-node=liqo-broker is missing",
			"kubectl -n liqo-tenant-p1 delete virtualnode p1",
		},
		"a virtual kubelet of Liqo": {
			func(_ *testing.T, c *cluster) { c.kubelet().Image = "ghcr.io/liqotech/virtual-kubelet:v1.2.0" },
			"virtual-kubelet/liqo-tenant-p1/p1", Fail, "is Liqo's", "kubectl -n liqo-tenant-p1 patch virtualnode p1 --type=json",
		},
		"an older virtual kubelet": {
			func(_ *testing.T, c *cluster) { c.release("v0.2.0", "v0.1.0") },
			"virtual-kubelet/liqo-tenant-p1/p1", Warn, "version v0.1.0 is older than the broker's, v0.2.0",
			`"path": "/spec/template/spec/template/spec/containers/0/image", "value": "liqo-broker-vk:v0.2.0"}]'`,
		},
		"a virtual kubelet that is too old": {
			func(_ *testing.T, c *cluster) { c.release("v0.3.0", "v0.1.0") },
			"virtual-kubelet/liqo-tenant-p1/p1", Fail, "more than a minor version older", "patch virtualnode p1",
		},
		"a newer virtual kubelet": {
			func(_ *testing.T, c *cluster) { c.release("v0.1.0", "v0.2.0") },
			"virtual-kubelet/liqo-tenant-p1/p1", Warn, "newer than the broker's", "patch virtualnode p1",
		},
		"a virtual kubelet with Liqo's support of API servers": {
			func(_ *testing.T, c *cluster) {
				c.kubelet().Args = append(c.kubelet().Args, "--enable-apiserver-support")
			},
			"virtual-kubelet/liqo-tenant-p1/p1", Fail, "--enable-apiserver-support is true", "delete virtualnode p1",
		},
		"a VirtualNode with its own Node": {
			func(_ *testing.T, c *cluster) {
				find[*offloadingv1beta1.VirtualNode](c, "p1").Spec.CreateNode = ptr.To(true)
			},
			"virtual-kubelet/liqo-tenant-p1/p1", Fail, "it has a Node of its own", "kubectl -n liqo-tenant-p1 delete virtualnode p1",
		},
		"a VirtualNode without a Deployment": {
			func(_ *testing.T, c *cluster) { find[*offloadingv1beta1.VirtualNode](c, "p1").Spec.Template = nil },
			"virtual-kubelet/liqo-tenant-p1/p1", Warn, "has not made its Deployment", "kubectl -n liqo-tenant-p1 describe virtualnode p1",
		},
		"no provider": {
			func(_ *testing.T, c *cluster) { remove[*v1alpha1.ProviderCluster](c) },
			"providers", Warn, "no cluster shares resources", "liqoctl peer",
		},
		"a provider that was not probed": {
			func(_ *testing.T, c *cluster) { c.conditions() },
			"provider/p1", Warn, "has not probed it yet", "logs deployment/liqo-broker",
		},
		"a spec that was not read": {
			func(_ *testing.T, c *cluster) { find[*v1alpha1.ProviderCluster](c, "p1").Generation = 2 },
			"provider/p1", Warn, "has not read its spec", "logs deployment/liqo-broker",
		},
		"a provider that rejects the broker": {
			func(_ *testing.T, c *cluster) { c.conditions(notReady("Reachable", "Rejects", "status 401")...) },
			"provider/p1", Fail, "Reachable: Rejects", "liqoctl authenticate",
		},
		"a silent provider": {
			func(_ *testing.T, c *cluster) { c.conditions(notReady("Reachable", "NoAnswer", "refused")...) },
			"provider/p1", Fail, "Reachable: NoAnswer", "get --raw '/readyz?verbose'",
		},
		"a silent provider that is disabled": {
			func(_ *testing.T, c *cluster) {
				c.conditions(notReady("Reachable", "NoAnswer", "refused")...).Spec.Enabled = ptr.To(false)
			},
			"provider/p1", Warn, "it is disabled", "/readyz",
		},
		"a provider without a kubeconfig": {
			func(_ *testing.T, c *cluster) {
				c.conditions(notReady("Reachable", "NoKubeconfig", "no kubeconfig")...)
			},
			"provider/p1", Fail, "NoKubeconfig", "liqoctl peer",
		},
		"a provider behind a proxy": {
			func(_ *testing.T, c *cluster) {
				c.conditions(notReady("Reachable", "NoKubeconfig", "proxyURL http://p")...)
			},
			"provider/p1", Fail, "NoKubeconfig", "edit deployment liqo-broker   # add --provider-proxy-url",
		},
		"a provider with another node": {
			func(_ *testing.T, c *cluster) { c.conditions(notReady("KubeletReady", "ServesAnotherNode", "p1")...) },
			"provider/p1", Fail, "ServesAnotherNode", "kubectl -n liqo-tenant-p1 delete virtualnode p1",
		},
		"a provider without a virtual kubelet": {
			func(_ *testing.T, c *cluster) { c.conditions(notReady("KubeletReady", "LeaseLost", "p1")...) },
			"provider/p1", Fail, "LeaseLost", "kubectl -n liqo-tenant-p1 describe pods",
		},
		"a provider without a network": {
			func(_ *testing.T, c *cluster) { c.conditions(notReady("NetworkReady", "NotConnected", "no")...) },
			"provider/p1", Fail, "NotConnected", "liqoctl info peer p1",
		},
		"a provider that is gone": {
			func(_ *testing.T, c *cluster) {
				c.conditions(metav1.Condition{
					Type: v1alpha1.ProviderReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPeered,
					Message: "there is no VirtualNode of this cluster",
				})
			},
			"provider/p1", Fail, "there is no VirtualNode", "kubectl delete providercluster p1",
		},
		"a provider that recovers": {
			func(_ *testing.T, c *cluster) {
				pc := find[*v1alpha1.ProviderCluster](c, "p1")
				pc.Status.Conditions = append(pc.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse, Reason: "MovedPodsLeft",
				})
			},
			"provider/p1", Warn, "Clean is False: MovedPodsLeft", "kubectl get pods -A -l brokering.liqo.io/provider=p1",
		},
		"a slice without pods": {
			func(_ *testing.T, c *cluster) {
				find[*v1alpha1.ProviderCluster](c, "p1").Status.VirtualNodes[0].Reason = "VirtualNode terminating"
			},
			"provider/p1", Warn, "its slice p1: VirtualNode terminating", "kubectl -n liqo-tenant-p1 describe virtualnode p1",
		},
		"a certificate that has expired": {
			func(t *testing.T, c *cluster) { c.certificate(t, -90*24*time.Hour, -time.Hour) },
			"credentials/liqo-tenant-p1/resourceslice-p1", Fail, "expired at 2026-11-02T11:00:00Z", "liqoctl authenticate",
		},
		"a certificate that was not renewed": {
			func(t *testing.T, c *cluster) { c.certificate(t, -80*24*time.Hour, 10*24*time.Hour) },
			"credentials/liqo-tenant-p1/resourceslice-p1", Warn, "Liqo should have renewed it", "logs deployment/liqo-controller-manager",
		},
		"a certificate of the future": {
			func(t *testing.T, c *cluster) { c.certificate(t, time.Hour, 10*24*time.Hour) },
			"credentials/liqo-tenant-p1/resourceslice-p1", Warn, "the clocks of the clusters differ", "readyz",
		},
		"a certificate that cannot be read": {
			func(_ *testing.T, c *cluster) {
				find[*authv1beta1.Identity](c, "resourceslice-p1").Spec.AuthParams.SignedCRT = []byte("no certificate")
			},
			"credentials/liqo-tenant-p1/resourceslice-p1", Fail, "not in PEM", "liqoctl authenticate",
		},
		"no remote IPAM": {
			func(_ *testing.T, c *cluster) { remove[*corev1.Service](c, "liqo-network-manager") },
			"remote-ipam", Fail, "does not exist", "deploy/network-manager.yaml",
		},
		"a remote IPAM without an address": {
			func(_ *testing.T, c *cluster) {
				find[*corev1.Service](c, "liqo-network-manager").Status = corev1.ServiceStatus{}
			},
			"remote-ipam", Warn, "no address", "describe service liqo-network-manager",
		},
		"a remote IPAM inside": {
			func(_ *testing.T, c *cluster) {
				find[*corev1.Service](c, "liqo-network-manager").Spec.Type = corev1.ServiceTypeClusterIP
			},
			"remote-ipam", Warn, "ClusterIP, which consumers do not reach", `-p '{"spec": {"type": "LoadBalancer"}}'`,
		},
		"no catalog": {
			func(_ *testing.T, c *cluster) { remove[*appsv1.Deployment](c, "liqo-broker-catalog") },
			"catalog", Warn, "no catalog runs", "deploy/catalog.yaml",
		},
		"a catalog that is down": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-broker-catalog").Status.ReadyReplicas = 0
			},
			"catalog", Warn, "0/2 replicas", "describe pods",
		},
		"another catalog": {
			func(_ *testing.T, c *cluster) {
				find[*appsv1.Deployment](c, "liqo-broker-catalog").Spec.Template.Spec.Containers[0].Image = "liqo-broker-vk:v0.0.1"
			},
			"catalog", Warn, "the image is liqo-broker-vk:v0.0.1", "set image deployment/liqo-broker-catalog catalog=liqo-broker-vk:dev",
		},
		"a ledger that is lost": {
			func(_ *testing.T, c *cluster) { c.ledger("/tmp/ledger.db", nil) },
			"ledger", Warn, "/tmp/ledger.db is not on a persistent volume", "--set broker.ledger.enabled=true",
		},
		"a ledger without a claim": {
			func(_ *testing.T, c *cluster) { c.ledger("/var/lib/liqo-broker/ledger.db", nil) },
			"ledger", Fail, "liqo-broker-ledger does not exist", "--set broker.ledger.enabled=true",
		},
		"a ledger without a volume": {
			func(_ *testing.T, c *cluster) {
				c.ledger("/var/lib/liqo-broker/ledger.db", ptr.To(corev1.ClaimPending))
			},
			"ledger", Fail, "is Pending", "describe persistentvolumeclaim liqo-broker-ledger",
		},
		"a clock of this machine": {
			func(_ *testing.T, c *cluster) { c.ahead = -time.Minute },
			"clocks", Warn, "this machine is 1m0s ahead of the API server's", "timedatectl",
		},
		"another clock of this machine": {
			func(_ *testing.T, c *cluster) { c.ahead = time.Minute },
			"clocks", Warn, "this machine is 1m0s behind the API server's", "timedatectl",
		},
		"a clock of the broker": {
			func(_ *testing.T, c *cluster) {
				find[*coordinationv1.Lease](c, "liqo-broker").Spec.RenewTime.Time = ofTest().Add(time.Minute)
			},
			"clocks", Warn, "1m0s from now: the clock of the broker is ahead of the API server's", "get pods -l",
		},
		"a lease that is not renewed": {
			func(_ *testing.T, c *cluster) {
				find[*coordinationv1.Lease](c, "liqo-broker").Spec.RenewTime.Time = ofTest().Add(-time.Minute)
			},
			"clocks", Warn, "renewed 1m0s ago", "get pods -l",
		},
		"a caller who may only look": {
			func(_ *testing.T, c *cluster) { c.denied["patch providerclusters.brokering.liqo.io"] = true },
			"rights/drain", Warn, "the caller may not patch providerclusters.brokering.liqo.io",
			"kubectl create clusterrole kubectl-broker-patch-providerclusters --verb=patch --resource=providerclusters.brokering.liqo.io " +
				"&& kubectl create clusterrolebinding kubectl-broker-patch-providerclusters " +
				"--clusterrole=kubectl-broker-patch-providerclusters --user=jane",
		},
		"a caller who may not read Liqo's objects": {
			func(_ *testing.T, c *cluster) {
				c.denied["list virtualnodes.offloading.liqo.io"], c.denied["list namespacemaps.offloading.liqo.io"] = true, true
				c.denied["get pods"] = true
			},
			"rights/explain", Warn, "may not get pods, list virtualnodes.offloading.liqo.io, list namespacemaps.offloading.liqo.io",
			"--user=jane && kubectl create clusterrole kubectl-broker-list-virtualnodes --verb=list " +
				"--resource=virtualnodes.offloading.liqo.io,namespacemaps.offloading.liqo.io && ",
		},
	}
}

// release sets the versions of the images.
func (c *cluster) release(broker, kubelet string) {
	c.broker().Containers[0].Image = "liqo-broker-vk:" + broker
	c.kubelet().Image = "liqo-broker-vk:" + kubelet
}

func (c *cluster) certificate(t *testing.T, from, until time.Duration) {
	find[*authv1beta1.Identity](c, "resourceslice-p1").Spec.AuthParams.SignedCRT = certificate(t, ofTest().Add(from), ofTest().Add(until))
}

// ledger adds a ledger, with its volume at /var/lib/liqo-broker, and the claim if it has a phase.
func (c *cluster) ledger(file string, phase *corev1.PersistentVolumeClaimPhase) {
	spec := c.broker()
	spec.Containers[0].Args = append(spec.Containers[0].Args, "--ledger="+file)
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "ledger", MountPath: "/var/lib/liqo-broker"})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "ledger", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "liqo-broker-ledger"},
	}})
	if phase != nil {
		c.objects = append(c.objects, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-broker", Name: "liqo-broker-ledger"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: *phase},
		})
	}
}

func TestFaults(t *testing.T) {
	for name, fault := range faults() {
		t.Run(name, func(t *testing.T) {
			c := complete(t)
			fault.do(t, c)
			report, err := c.run(t)
			require.NoError(t, err)
			found := checkOf(report, fault.name)
			require.NotNil(t, found, "%+v", report)
			require.Equal(t, fault.state, found.State, "%+v", found)
			require.Contains(t, found.Message, fault.message)
			require.Contains(t, found.Remedy, fault.remedy)
			require.False(t, fault.state.worse(report.State))
		})
	}
}

func checkOf(report *Report, name string) *Check {
	for j := range report.Checks {
		if report.Checks[j].Name == name {
			return &report.Checks[j]
		}
	}
	return nil
}

func TestPartsThatAreNotInstalledAreNotChecked(t *testing.T) {
	c := complete(t)
	remove[*corev1.Service](c)
	remove[*appsv1.Deployment](c, "liqo-broker-catalog")
	args := c.broker().Containers[0].Args
	c.broker().Containers[0].Args = args[:len(args)-2]
	report, err := c.run(t)
	require.NoError(t, err)
	require.Equal(t, OK, report.State)
	for _, name := range []string{"remote-ipam", "catalog", "ledger"} {
		require.Nil(t, checkOf(report, name))
	}
}

// An administrator knows why these get no pods.
func TestProvidersThatArePaused(t *testing.T) {
	for want, pause := range map[string]func(*v1alpha1.ProviderCluster){
		"it is Ready, and disabled": func(pc *v1alpha1.ProviderCluster) { pc.Spec.Enabled = ptr.To(false) },
		"it is Ready, and cordoned": func(pc *v1alpha1.ProviderCluster) { pc.Spec.Cordoned = true },
		"it is Ready, and drained":  func(pc *v1alpha1.ProviderCluster) { pc.Spec.Drain = true },
	} {
		c := complete(t)
		pc := find[*v1alpha1.ProviderCluster](c, "p1")
		pause(pc)
		pc.Status.VirtualNodes[0].Reason = "draining"
		report, err := c.run(t)
		require.NoError(t, err)
		require.Equal(t, OK, report.State)
		require.Equal(t, want, checkOf(report, "provider/p1").Message)
	}
}

// The volume of a path is the one that is mounted nearest to it.
func TestTheVolumeOfTheLedger(t *testing.T) {
	c := complete(t)
	c.ledger("/var/lib/liqo-broker/ledger.db", ptr.To(corev1.ClaimBound))
	spec := c.broker()
	outer := corev1.VolumeMount{Name: "tmp", MountPath: "/var/lib"}
	for _, mounts := range [][]corev1.VolumeMount{
		append(slices.Clone(spec.Containers[0].VolumeMounts), outer),
		append([]corev1.VolumeMount{outer}, spec.Containers[0].VolumeMounts...),
	} {
		spec.Containers[0].VolumeMounts = mounts
		report, err := c.run(t)
		require.NoError(t, err)
		require.Equal(t, OK, checkOf(report, "ledger").State, "%+v", mounts)
	}
}

func TestClocksWithoutALease(t *testing.T) {
	c := complete(t)
	remove[*coordinationv1.Lease](c)
	report, err := c.run(t)
	require.NoError(t, err)
	require.Equal(t, "the clock of this machine agrees with the API server's", checkOf(report, "clocks").Message)
}

func TestParts(t *testing.T) {
	c := complete(t)
	c.ledger("/var/lib/liqo-broker/ledger.db", ptr.To(corev1.ClaimBound))
	service := find[*corev1.Service](c, "liqo-network-manager")
	service.Spec.Type = corev1.ServiceTypeNodePort
	service.Spec.Ports[0].NodePort = 30600
	other := find[*offloadingv1beta1.VirtualNode](c, "p1").DeepCopy()
	other.Name, other.Labels = "other", map[string]string{"use": "ours"}
	other.Spec.Template = nil
	find[*offloadingv1beta1.VirtualNode](c, "p1").Labels = map[string]string{"use": "broker"}
	c.objects = append(c.objects, other)
	c.broker().Containers[0].Args = append(c.broker().Containers[0].Args, "--provider-selector", "use=broker")
	report, err := c.run(t)
	require.NoError(t, err)
	require.Equal(t, OK, report.State, "%+v", report)
	require.Equal(t, "/var/lib/liqo-broker/ledger.db is on the claim liqo-broker-ledger", checkOf(report, "ledger").Message)
	require.Contains(t, checkOf(report, "remote-ipam").Message, "--remote-ipam=server=<address of a node>:30600")
	require.Nil(t, checkOf(report, "virtual-kubelet/liqo-tenant-p1/other"), "it is not selected")
}

// A caller without a right gets a warning in place of the check, and a command that grants the right.
func TestObjectsThatTheCallerMayNotRead(t *testing.T) {
	for kind, want := range map[string][]string{
		"Deployment":                {"liqo", "broker"},
		"CustomResourceDefinition":  {"crds"},
		"ValidatingAdmissionPolicy": {"guard"},
		"Node":                      {"node"},
		"Lease":                     {"clocks"},
		"VkOptionsTemplate":         {"virtual-kubelet-options"},
		"VirtualNode":               {"virtual-kubelets"},
		"ProviderCluster":           {"providers"},
		"Identity":                  {"credentials"},
		"Service":                   {"remote-ipam"},
		"SelfSubjectAccessReview":   nil,
	} {
		t.Run(kind, func(t *testing.T) {
			c := complete(t)
			c.forbidden[kind] = kerrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
			report, err := c.run(t)
			if kind == "SelfSubjectAccessReview" {
				require.ErrorContains(t, err, "asking whether the caller may get providerclusters.brokering.liqo.io")
				return
			}
			require.NoError(t, err)
			var warned []string
			for _, found := range report.Checks {
				if found.State == OK {
					continue
				}
				warned = append(warned, found.Name)
				require.Equal(t, Warn, found.State)
				require.Contains(t, found.Message, "not checked: the caller may not ")
				require.Contains(t, found.Remedy, "kubectl create clusterrole ")
				require.Contains(t, found.Remedy, "--user=jane")
			}
			require.Equal(t, want, warned)
		})
	}
}

func TestOtherErrorsEndTheCheck(t *testing.T) {
	for _, kind := range []string{
		"Deployment", "CustomResourceDefinition", "ValidatingAdmissionPolicyBinding", "Node", "Lease", "VirtualNode", "Service",
		"SelfSubjectAccessReview",
	} {
		c := complete(t)
		c.forbidden[kind] = kerrors.NewInternalError(errors.New("etcd"))
		_, err := c.run(t)
		require.ErrorContains(t, err, "etcd", kind)
	}
}

// Whatever is wrong together: names are unique, each fault has a message and a remedy, and the same cluster has the same
// report.
func TestReportsOfAnyFaults(t *testing.T) {
	all := faults()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	rapid.Check(t, func(r *rapid.T) {
		c := complete(t)
		applied := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 6, rapid.ID).Draw(r, "faults")
		for _, name := range applied {
			func() {
				defer func() { _ = recover() }() // An object of the fault was removed by another one.
				all[name].do(t, c)
			}()
		}
		report, err := c.run(t)
		require.NoError(r, err)
		again, err := c.run(t)
		require.NoError(r, err)
		require.Equal(r, report, again)
		seen := map[string]bool{}
		worst := OK
		for _, found := range report.Checks {
			require.False(r, seen[found.Name], "%s is twice in the report", found.Name)
			seen[found.Name] = true
			require.NotEmpty(r, found.Message)
			require.Equal(r, found.State == OK, found.Remedy == "", "%+v", found)
			require.NotContains(r, found.Message+found.Remedy, "\n")
			if found.State.worse(worst) {
				worst = found.State
			}
		}
		require.Equal(r, worst, report.State)
		require.Equal(r, len(report.Checks), report.Count(OK)+report.Count(Warn)+report.Count(Fail))
	})
}

func TestDifferences(t *testing.T) {
	for name, tc := range map[string]struct {
		broker, other string
		state         State
	}{
		"one image":         {"r/a:v0.2.0", "r/a:v0.2.0", OK},
		"a mirror":          {"r/a:v0.2.0", "mirror/a:v0.2.0", OK},
		"one digest":        {"r/a@sha256:1", "mirror:5000/b:x@sha256:1", OK},
		"a digest, a tag":   {"r/a@sha256:1", "r/a:v0.2.0", OK},
		"of two names":      {"r/a@sha256:1", "r/b:v0.2.0", Warn},
		"another digest":    {"r/a@sha256:1", "r/a@sha256:2", Warn},
		"a patch older":     {"r/a:v0.2.1", "r/a:v0.2.0", Warn},
		"a minor older":     {"r/a:v0.2.0", "r/a:v0.1.9", Warn},
		"two minors older":  {"r/a:v0.3.0", "r/a:v0.1.9", Fail},
		"a major older":     {"r/a:v1.0.0", "r/a:v0.9.0", Fail},
		"newer":             {"r/a:v0.2.0", "r/a:v0.2.1", Warn},
		"another name":      {"r/a:v0.2.0", "r/b:v0.2.0", Warn},
		"a port, not a tag": {"r:5000/a", "r:5000/b", Warn},
		"not known":         {"", "r/a", OK},
	} {
		t.Run(name, func(t *testing.T) {
			state, text := differs(tc.broker, tc.other)
			require.Equal(t, tc.state, state)
			require.Equal(t, state == OK, text == "")
		})
	}
}

func TestArguments(t *testing.T) {
	args := []string{"/usr/bin/x", "broker", "--a=1", "--b", "2", "--c", "--a=3", "--d", "-v"}
	for name, want := range map[string]string{"a": "3", "b": "2", "c": "true", "d": "true"} {
		value, found := argument(args, name)
		require.True(t, found)
		require.Equal(t, want, value, name)
	}
	_, found := argument(args, "broker")
	require.False(t, found)
	require.Equal(t, "system:serviceaccount:a:b", quoted("system:serviceaccount:a:b"))
	require.Equal(t, `'it'\''s'`, quoted("it's"))
	require.Equal(t, "''", quoted(""))
}

// The versions are the same as in the documents.
func TestTestedVersionsOfLiqo(t *testing.T) {
	text, err := os.ReadFile("../../../docs/releases.md")
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| \[?v(1\.\d+)\.\d+.*$`).FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = strings.Contains(row[0], "| everything |")
	}
	require.Equal(t, documented, testedLiqo())
}
