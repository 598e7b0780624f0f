package deploy

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
)

func TestHelmLintFindsNothing(t *testing.T) {
	cases := map[string]map[string]any{"the default values": {}, "unusual values": unusual()}
	for _, service := range Services() {
		cases[service] = Values(service)
	}
	for name, values := range cases {
		for _, message := range lint.All(here.chart(), values, Namespace, true).Messages {
			assert.LessOrEqual(t, message.Severity, support.InfoSev, "%s: %s: %s", name, message.Path, message.Err)
		}
	}
	faulty := lint.All(here.chart(), map[string]any{"services": "all"}, Namespace, true)
	require.Equal(t, support.ErrorSev, faulty.HighestSeverity, "values are looked at")
}

func TestValuesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ values, want string }{
		"a key that there is not": {
			`{"replicaCount": 3}`,
			"Additional property replicaCount is not allowed",
		},
		"a key of the image that is not": {
			`{"image": {"name": "x"}}`,
			"image: Additional property name is not allowed",
		},
		"a service that there is not": {
			`{"services": {"billing": true}}`,
			"services: Additional property billing is not allowed",
		},
		"a service that is not yes or no": {
			`{"services": {"catalog": "yes"}}`,
			"services.catalog: Invalid type. Expected: boolean, given: string",
		},
		"a mode of the catalog that there is not": {
			`{"catalog": {"mode": "side-car"}}`,
			`catalog.mode: catalog.mode must be one of the following: "deployment", "sidecar"`,
		},
		"nodes for the catalog in the pods of the broker": {
			`{"services": {"catalog": true}, "catalog": {"mode": "sidecar", "nodeSelector": {"a": "b"}}}`,
			"catalog.nodeSelector: with catalog.mode=sidecar the catalog runs in the pods of the broker, so set broker.nodeSelector",
		},
		"a ledger of two replicas": {
			`{"broker": {"replicas": 2, "ledger": {"enabled": true}}}`,
			"broker.ledger.enabled needs broker.replicas=1",
		},
		"a ledger of a size that is none": {
			`{"broker": {"replicas": 1, "ledger": {"enabled": true, "size": "much"}}}`,
			"broker.ledger.size: Does not match pattern",
		},
		"no service at all": {
			`{"services": {"catalog": false, "orchestrator": false, "aggregator": false}}`,
			"switch on at least one of catalog, orchestrator and aggregator",
		},
		"a digest that is none": {
			`{"image": {"digest": "latest"}}`,
			"image.digest: Does not match pattern",
		},
		"a tag in the repository's digest": {
			`{"image": {"repository": "x@sha256:1"}}`,
			"image.repository: Does not match pattern",
		},
		"a node that has no name": {
			`{"brokerNode": ""}`,
			"brokerNode: Does not match pattern",
		},
		"a node whose name is in capitals": {
			`{"brokerNode": "Broker"}`,
			"brokerNode: Does not match pattern",
		},
		"a log level that there is not": {
			`{"logLevel": "trace"}`,
			"logLevel must be one of the following",
		},
		"half a replica": {
			`{"broker": {"replicas": 0.5}}`,
			"broker.replicas: Invalid type. Expected: integer, given: number",
		},
		"an argument without dashes": {
			`{"broker": {"extraArgs": ["overcommit=2"]}}`,
			"broker.extraArgs.0: Does not match pattern",
		},
		"an argument Liqo panics at": {
			`{"virtualKubelets": {"extraArgs": ["--direct-traffic"]}}`,
			"virtualKubelets.extraArgs.0: Does not match pattern",
		},
		"a variable without a name": {
			`{"broker": {"env": [{"value": "x"}]}}`,
			"broker.env.0: name is required",
		},
		"resources under another name": {
			`{"catalog": {"resources": {"request": {}}}}`,
			"catalog.resources: Additional property request is not allowed",
		},
		"an annotation that is a number": {
			`{"networkManager": {"service": {"annotations": {"a": 1}}}}`,
			"networkManager.service.annotations.a: Invalid type. Expected: string, given: integer",
		},
		"a type of Service that is not": {
			`{"catalog": {"service": {"type": "ExternalName"}}}`,
			"catalog.service.type must be one of the following",
		},
		"a policy of traffic that is not": {
			`{"catalog": {"service": {"type": "LoadBalancer", "externalTrafficPolicy": "local"}}}`,
			"catalog.service.externalTrafficPolicy must be one of the following",
		},
		"a policy of traffic from outside where there is none": {
			`{"catalog": {"service": {"externalTrafficPolicy": "Local"}}}`,
			"externalTrafficPolicy is for the types NodePort and LoadBalancer",
		},
		"one for a Service that has none": {
			`{"networkManager": {"service": {"externalTrafficPolicy": "Local"}}}`,
			"networkManager.service: Additional property externalTrafficPolicy is not allowed",
		},
		"a level of Pod Security that there is not": {
			`{"guard": {"podSecurity": "restricted"}}`,
			"guard.podSecurity must be one of the following",
		},
		"TLS and none": {
			`{"catalog": {"plainHTTP": true, "tlsSecret": "x"}}`,
			"plainHTTP is without TLS",
		},
		"monitoring without saying whether": {
			`{"monitoring": true}`,
			"monitoring: Invalid type. Expected: object, given: boolean",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var values map[string]any
			require.NoError(t, json.Unmarshal([]byte(c.values), &values))
			_, err := here.RenderedWith(Namespace, values)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Every default is in values.yaml, and nothing else. The schema rejects all other keys, so values.yaml and the schema
// have the same keys.
func TestSchemaAndValuesHaveTheSameKeys(t *testing.T) {
	var schema map[string]any
	text, err := os.ReadFile(filepath.Join(here.chart(), "values.schema.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &schema))
	text, err = os.ReadFile(filepath.Join(here.chart(), "values.yaml"))
	require.NoError(t, err)
	values, err := parse(string(text))
	require.NoError(t, err)
	properties := schema["properties"].(map[string]any)
	delete(properties, "global")
	sameKeys(t, "", properties, values[0].Object)
}

func sameKeys(t *testing.T, path string, properties, values map[string]any) {
	t.Helper()
	for key := range values {
		assert.Contains(t, properties, key, path)
	}
	for key, property := range properties {
		if !assert.Contains(t, values, key, path) {
			continue
		}
		if below, ok := property.(map[string]any)["properties"].(map[string]any); ok {
			sameKeys(t, path+"."+key, below, values[key].(map[string]any))
		}
	}
}

func TestUnusualValuesAreFollowed(t *testing.T) {
	objects, err := here.RenderedWith("elsewhere", unusual())
	require.NoError(t, err)
	for _, name := range []string{"liqo-broker", "liqo-broker-catalog"} {
		d := find[appsv1.Deployment](t, objects, "Deployment", name)
		pod := d.Spec.Template.Spec
		assert.Equal(t, int32(1), *d.Spec.Replicas)
		assert.Subset(t, pod.Containers[0].Args, []string{"--broker-node=0815", "--log-level=debug", "--client-qps=7"})
		args := pod.Containers[0].Args
		assert.Equal(t, "--client-qps=7", args[len(args)-1], "what is given by hand has the last word")
		assert.Equal(t, corev1.PullAlways, pod.Containers[0].ImagePullPolicy)
		assert.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.ImagePullSecrets)
		assert.Equal(t, "1Gi", pod.Containers[0].Resources.Limits.Memory().String())
		assert.Equal(t, map[string]string{"disk": "fast"}, pod.NodeSelector)
		assert.Equal(t, "dedicated", pod.Tolerations[0].Key)
		assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
		assert.Equal(t, map[string]string{"example.com/scrape": "no"}, d.Spec.Template.Annotations)
		variables := pod.Containers[0].Env
		assert.Equal(t, "collector", variables[len(variables)-1].ValueFrom.SecretKeyRef.Name)
		assert.Contains(t, pod.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: "ca", MountPath: "/etc/collector", ReadOnly: true})
		volumes := pod.Volumes
		assert.Equal(t, "collector-ca", volumes[len(volumes)-1].ConfigMap.Name)
		assert.False(t, has(objects, "PodDisruptionBudget", name), "the only replica could not be drained")
	}
	options := find[offloadingv1beta1.VkOptionsTemplate](t, objects, "VkOptionsTemplate", "virtual-kubelet-default").Spec
	assert.Equal(t, corev1.PullAlways, options.PullPolicy)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, options.ImagePullSecrets)
	catalog := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker-catalog").Spec.Template.Spec
	assert.Subset(t, catalog.Containers[0].Args, []string{
		"--tls-cert-file=/etc/liqo-broker-catalog/tls.crt", "--tls-key-file=/etc/liqo-broker-catalog/tls.key",
	})
	assert.NotContains(t, catalog.Containers[0].Args, "--tls-secret=liqo-broker-catalog")
	assert.False(t, slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" }))
	assert.Equal(t, "/etc/liqo-broker-catalog", catalog.Containers[0].VolumeMounts[0].MountPath)
	assert.Equal(t, "certificate", catalog.Volumes[0].Secret.SecretName)
	for _, name := range []string{"liqo-network-manager", "liqo-broker-catalog"} {
		service := find[corev1.Service](t, objects, "Service", name)
		assert.Equal(t, corev1.ServiceTypeLoadBalancer, service.Spec.Type)
		assert.Equal(t, "1", service.Annotations["example.com/pool"])
	}
	service := find[corev1.Service](t, objects, "Service", "liqo-broker-catalog")
	assert.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, service.Spec.ExternalTrafficPolicy)
	for _, o := range objects {
		assert.NotContains(t, []string{"CustomResourceDefinition", "NetworkPolicy"}, o.GetKind())
		if o.GetAPIVersion() == "monitoring.coreos.com/v1" {
			assert.Equal(t, "prometheus", o.GetLabels()["release"], o.GetName())
			assert.Equal(t, "elsewhere", o.GetNamespace(), o.GetName())
		}
	}
	require.True(t, has(objects, "PodMonitor", "liqo-broker"))
	require.True(t, has(objects, "PrometheusRule", "liqo-broker"))
	require.True(t, has(objects, "ConfigMap", "liqo-broker-dashboard"))
}

// TestTheSecretOfTheCatalogHasNoData prevents an upgrade from replacing the certificate.
func TestTheSecretOfTheCatalogHasNoData(t *testing.T) {
	objects := rendered(t, Catalog)
	secret := find[corev1.Secret](t, objects, "Secret", "liqo-broker-catalog")
	assert.Empty(t, secret.Data)
	assert.Empty(t, secret.StringData)
	assert.Equal(t, corev1.SecretTypeOpaque, secret.Type)
	catalog := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker-catalog").Spec.Template.Spec
	assert.Contains(t, catalog.Containers[0].Args, "--tls-secret="+secret.Name)
}

func TestTwoReplicasMayBeDrainedOneByOne(t *testing.T) {
	budget := find[policyv1.PodDisruptionBudget](t, rendered(t, Orchestrator), "PodDisruptionBudget", "liqo-broker")
	require.Equal(t, 1, budget.Spec.MinAvailable.IntValue())
}

func TestEverythingIsForTheNodeOfThatName(t *testing.T) {
	values := Values(All)
	values["brokerNode"] = "europe"
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, o := range objects {
		switch o.GetKind() {
		case "ClusterRole", "Role":
			role := find[rbacv1.ClusterRole](t, []*unstructured.Unstructured{o}, o.GetKind(), o.GetName())
			for _, rule := range role.Rules {
				assert.NotContains(t, rule.ResourceNames, "liqo-broker", identity(o))
				for _, name := range rule.ResourceNames {
					found[strings.Join(rule.Resources, ",")] = found[strings.Join(rule.Resources, ",")] || name == "europe"
				}
			}
		case "Deployment", "VkOptionsTemplate":
			text, err := o.MarshalJSON()
			require.NoError(t, err)
			assert.Contains(t, string(text), `"--broker-node=europe"`, identity(o))
			assert.NotContains(t, string(text), `--broker-node=liqo-broker`, identity(o))
		}
	}
	for _, resource := range []string{"nodes", "nodes/status", "leases"} {
		assert.True(t, found[resource], resource)
	}
}

func TestEverythingIsForTheNamespaceOfTheRelease(t *testing.T) {
	values := Values(All)
	values["monitoring"] = map[string]any{"enabled": true}
	objects, err := here.RenderedWith("elsewhere", values)
	require.NoError(t, err)
	accounts := 0
	for _, o := range objects {
		assert.Contains(t, []string{"", "elsewhere", "kube-system", "kube-node-lease", "liqo"}, o.GetNamespace(), identity(o))
		text, err := o.MarshalJSON()
		require.NoError(t, err)
		assert.NotContains(t, string(text), "system:serviceaccount:liqo-broker:", identity(o))
		accounts += strings.Count(string(text), "system:serviceaccount:elsewhere:")
		subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
		require.NoError(t, err)
		for _, subject := range subjects {
			assert.Equal(t, "elsewhere", subject.(map[string]any)["namespace"], identity(o))
		}
	}
	assert.Equal(t, 2, accounts, "the policies of the broker and of the catalog")
}

// YAML parses 0815 as a number and on as true.
func TestNamesThatLookLikeSomethingElseAreNames(t *testing.T) {
	values := Values(All)
	values["image"] = map[string]any{"pullSecrets": []any{"0815"}}
	values["catalog"] = map[string]any{"tlsSecret": "1e3"}
	values["virtualKubelets"] = map[string]any{"liqoNamespace": "on", "options": true}
	values["monitoring"] = map[string]any{"enabled": true}
	objects, err := here.RenderedWith("123", values)
	require.NoError(t, err)
	for _, o := range objects {
		metadata := o.Object["metadata"].(map[string]any)
		for _, field := range []string{"name", "namespace"} {
			if value, there := metadata[field]; there {
				assert.IsType(t, "", value, "%s of %s %v", field, o.GetKind(), metadata["name"])
			}
		}
		subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
		require.NoError(t, err)
		for _, subject := range subjects {
			assert.Equal(t, "123", subject.(map[string]any)["namespace"], identity(o))
		}
	}
	require.True(t, has(objects, "Namespace", "123"))
	catalog := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker-catalog").Spec.Template.Spec
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "0815"}}, catalog.ImagePullSecrets)
	assert.Equal(t, "1e3", catalog.Volumes[0].Secret.SecretName)
}

// Helm does not delete the CRDs, with which all ProviderClusters would be deleted, nor the policies that guard pods and
// offers.
func TestCRDsAndGuardOutliveARelease(t *testing.T) {
	kept, policies := 0, guardPolicies(t)
	for _, o := range rendered(t, All) {
		if o.GetKind() == "CustomResourceDefinition" || slices.Contains(policies, o.GetName()) {
			kept++
			assert.Equal(t, "keep", o.GetAnnotations()["helm.sh/resource-policy"], identity(o))
		}
	}
	require.Equal(t, 3+2*len(policies), kept)
}

// guardPolicies returns the policies that the broker requires from the guard of this version.
func guardPolicies(t *testing.T) []string {
	t.Helper()
	policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t, All), "ValidatingAdmissionPolicy",
		"liqo-broker-assignments")
	return append(admission.Policies(), strings.Split(policy.Annotations[admission.PoliciesAnnotation], ",")...)
}

// The broker does nothing while one of these policies is missing.
func TestTheBrokerRequiresTheGuard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kustomize/base/guard.yaml")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^kind: ValidatingAdmissionPolicy\nmetadata:\n  name: (.*)$`).FindAllStringSubmatch(string(text), -1)
	var policies []string
	for _, name := range names {
		policies = append(policies, name[1])
	}
	require.ElementsMatch(t, policies, guardPolicies(t))
}

// noted finds the object in NOTES.txt.
var noted = regexp.MustCompile(`(?s)<<'END'\n(.*?)\nEND\n`)

func TestNotesHaveWhatAReleaseMayNot(t *testing.T) {
	values := Values(All)
	delete(values, "virtualKubelets")
	files, err := here.files(Namespace, values)
	require.NoError(t, err)
	found := noted.FindStringSubmatch(files["NOTES.txt"])
	require.NotNil(t, found, files["NOTES.txt"])
	objects, err := parse(found[1])
	require.NoError(t, err)
	want := byIdentity(t, rendered(t, All))
	for id, text := range byIdentity(t, objects) {
		require.Contains(t, id, "VkOptionsTemplate liqo/virtual-kubelet-default")
		require.Equal(t, want[id], text)
	}
	for lines := bufio.NewScanner(strings.NewReader(files["NOTES.txt"])); lines.Scan(); {
		assert.LessOrEqual(t, len(lines.Text()), 122, lines.Text())
	}
}

func TestNotesSayWhatIsStillMissing(t *testing.T) {
	const noRegistry, noWay = "is in no registry", "which consumers do not reach"
	service := func(kind string) map[string]any {
		return map[string]any{"service": map[string]any{"type": kind}}
	}
	for name, tc := range map[string]struct {
		image    string
		services string
		manager  map[string]any
		warnings []string
	}{
		"an image without a registry, a Service within the cluster": {"liqo-broker-vk", All, nil, []string{noRegistry, noWay}},
		"an image of a registry, a load balancer":                   {"registry.example.com/vk", All, service("LoadBalancer"), nil},
		"a port of the nodes":                                       {"registry.example.com/vk", All, service("NodePort"), nil},
		"no aggregator":                                             {"registry.example.com/vk", Orchestrator, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			values := Values(tc.services)
			values["image"] = map[string]any{"repository": tc.image}
			if tc.manager != nil {
				values["networkManager"] = tc.manager
			}
			files, err := here.files(Namespace, values)
			require.NoError(t, err)
			for _, warning := range []string{noRegistry, noWay} {
				if slices.Contains(tc.warnings, warning) {
					assert.Contains(t, files["NOTES.txt"], warning)
				} else {
					assert.NotContains(t, files["NOTES.txt"], warning)
				}
			}
		})
	}
}
