package deploy

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

// unusual are values that all differ from the defaults.
func unusual() map[string]any {
	process := func(more map[string]any) map[string]any {
		maps.Copy(more, map[string]any{
			"replicas":     1,
			"extraArgs":    []any{"--client-qps=7"},
			"resources":    map[string]any{"limits": map[string]any{"memory": "1Gi"}},
			"nodeSelector": map[string]any{"disk": "fast"},
			"tolerations":  []any{map[string]any{"key": "dedicated", "operator": "Exists"}},
			"env": []any{map[string]any{"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": map[string]any{
				"secretKeyRef": map[string]any{"name": "collector", "key": "headers"},
			}}},
			"volumes":           []any{map[string]any{"name": "ca", "configMap": map[string]any{"name": "collector-ca"}}},
			"volumeMounts":      []any{map[string]any{"name": "ca", "mountPath": "/etc/collector", "readOnly": true}},
			"podAnnotations":    map[string]any{"example.com/scrape": "no"},
			"priorityClassName": "system-cluster-critical",
		})
		return more
	}
	service := map[string]any{"type": "LoadBalancer", "annotations": map[string]any{"example.com/pool": "1"}}
	local := maps.Clone(service)
	local["externalTrafficPolicy"] = "Local"
	return map[string]any{
		"image": map[string]any{
			"repository": "registry.example.com:5000/team/vk", "tag": "v9", "digest": "sha256:" + digest,
			"pullPolicy": "Always", "pullSecrets": []any{"registry"},
		},
		"services":       map[string]any{"catalog": true, "orchestrator": true, "aggregator": true},
		"brokerNode":     "0815",
		"logLevel":       "debug",
		"broker":         process(map[string]any{}),
		"catalog":        process(map[string]any{"tlsSecret": "certificate", "service": local}),
		"networkManager": map[string]any{"service": service},
		"virtualKubelets": map[string]any{
			"liqoNamespace": "liqo-system", "extraArgs": []any{"--log-level=debug"}, "options": true,
		},
		"guard":         map[string]any{"localPods": true, "podSecurity": "privileged", "sameNames": true, "ingresses": true},
		"crds":          map[string]any{"install": false},
		"namespace":     map[string]any{"create": true},
		"networkPolicy": map[string]any{"enabled": false},
		"monitoring":    map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
	}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// everything returns the objects, by the values that they are rendered with.
func everything(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	all := map[string][]*unstructured.Unstructured{}
	for _, service := range Services() {
		all[service] = rendered(t, service)
	}
	var err error
	all["unusual values"], err = here.RenderedWith("elsewhere", unusual())
	require.NoError(t, err)
	plain := Values(Catalog)
	plain["catalog"] = map[string]any{"plainHTTP": true}
	all["plain HTTP"], err = here.RenderedWith(Namespace, plain)
	require.NoError(t, err)
	return all
}

func TestObjectsHaveTheirPlaceAndLabels(t *testing.T) {
	ofCluster := []string{
		"CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
	for name, objects := range everything(t) {
		for _, o := range objects {
			assert.Equal(t, slices.Contains(ofCluster, o.GetKind()), o.GetNamespace() == "", "%s: %s", name, identity(o))
			switch o.GetKind() {
			case "CustomResourceDefinition", "VkOptionsTemplate": // Generated from the API; Liqo's.
			default:
				assert.Equal(t, "liqo-broker-vk", o.GetLabels()["app.kubernetes.io/name"], "%s: %s", name, identity(o))
				assert.NotEmpty(t, o.GetLabels()["app.kubernetes.io/component"], "%s: %s", name, identity(o))
			}
		}
	}
}

// The API server drops unknown fields, so they would have no effect.
func TestObjectsHaveNoUnknownFields(t *testing.T) {
	known := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(known))
	require.NoError(t, offloadingv1beta1.AddToScheme(known))
	for name, objects := range everything(t) {
		for _, o := range objects {
			kind := o.GroupVersionKind()
			if kind.Group == "apiextensions.k8s.io" || kind.Group == "monitoring.coreos.com" {
				continue // Generated; test/exposition reads the monitors.
			}
			typed, err := known.New(kind)
			require.NoError(t, err, "%s: %s", name, identity(o))
			convert(t, o, typed)
		}
	}
}

// deployments returns the Deployments among the objects.
func deployments(t *testing.T, objects []*unstructured.Unstructured) []*appsv1.Deployment {
	t.Helper()
	var all []*appsv1.Deployment
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			all = append(all, find[appsv1.Deployment](t, objects, "Deployment", o.GetName()))
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestEverythingIsOneImage(t *testing.T) {
	for name, objects := range everything(t) {
		want := "liqo-broker-vk:dev"
		if name == "unusual values" {
			want = "registry.example.com:5000/team/vk@sha256:" + digest
		}
		for _, d := range deployments(t, objects) {
			for i := range d.Spec.Template.Spec.Containers {
				assert.Equal(t, want, d.Spec.Template.Spec.Containers[i].Image, "%s: %s", name, d.Name)
			}
		}
		options := find[offloadingv1beta1.VkOptionsTemplate](t, objects, "VkOptionsTemplate", "virtual-kubelet-default")
		assert.Equal(t, want, options.Spec.ContainerImage, name)
	}
}

func TestPodsPassTheRestrictedLevel(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	evaluate := func(pod *corev1.PodTemplateSpec) policy.AggregateCheckResult {
		return policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
	}
	for name, objects := range everything(t) {
		for _, d := range deployments(t, objects) {
			result := evaluate(&d.Spec.Template)
			assert.True(t, result.Allowed, "%s: %s: %s", name, d.Name, result.ForbiddenDetail())

			d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities = nil
			assert.False(t, evaluate(&d.Spec.Template).Allowed, "it is not looked at")
		}
		namespace := find[corev1.Namespace](t, objects, "Namespace", deployments(t, objects)[0].Namespace)
		for _, mode := range []string{"enforce", "audit", "warn"} {
			assert.Equal(t, "restricted", namespace.Labels["pod-security.kubernetes.io/"+mode], name)
		}
	}
}

// of returns the container ports, by name, of the pods that a selector selects.
func of(t *testing.T, objects []*unstructured.Unstructured, selector labels.Selector) map[string]int32 {
	t.Helper()
	ports := map[string]int32{}
	for _, d := range deployments(t, objects) {
		if !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			continue
		}
		for i := range d.Spec.Template.Spec.Containers {
			for _, port := range d.Spec.Template.Spec.Containers[i].Ports {
				ports[d.Name+"/"+port.Name] = port.ContainerPort
			}
		}
	}
	return ports
}

func TestServicesLeadToThePortsOfTheirName(t *testing.T) {
	for name, objects := range everything(t) {
		reached := map[string]int32{}
		for _, o := range objects {
			if o.GetKind() != "Service" {
				continue
			}
			service := find[corev1.Service](t, objects, "Service", o.GetName())
			ports := of(t, objects, labels.SelectorFromSet(service.Spec.Selector))
			for _, port := range service.Spec.Ports {
				leads := 0
				for pod, number := range ports {
					if suffix := "/" + port.TargetPort.String(); len(pod) > len(suffix) && pod[len(pod)-len(suffix):] == suffix {
						leads++
						reached[service.Name+":"+port.Name+" → "+pod] = number
						assert.Equal(t, port.Port, number, "%s: %s", name, pod)
					}
				}
				assert.Equal(t, 1, leads, "%s: Service %s, port %s: pods of one Deployment", name, service.Name, port.Name)
			}
		}
		want := map[string]int32{"liqo-broker:metrics → liqo-broker/metrics": 8080}
		pods := "liqo-broker-catalog"
		if !has(objects, "Deployment", pods) {
			pods = "liqo-broker"
		}
		if has(objects, "Service", "liqo-broker-catalog") {
			want["liqo-broker:http → "+pods+"/catalog"] = 8000
			own := "https"
			if name == "plain HTTP" {
				own = "http"
			}
			want["liqo-broker-catalog:"+own+" → "+pods+"/catalog"] = 8000
			want["liqo-broker-catalog:metrics → "+pods+"/catalog-metrics"] = 8082
		}
		if has(objects, "Service", "liqo-network-manager") {
			want["liqo-network-manager:grpc → liqo-broker/ipam"] = 6000
		}
		assert.Equal(t, want, reached, name)
	}
}

// admitted returns the ports that NetworkPolicies open to all sources, and the ports that they open to the cluster's
// pods.
func admitted(t *testing.T, objects []*unstructured.Unstructured) (everybody, cluster []string) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		p := find[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", o.GetName())
		if types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}; !slices.Equal(p.Spec.PolicyTypes, types) {
			require.Equal(t, append(types, networkingv1.PolicyTypeEgress), p.Spec.PolicyTypes)
			require.Equal(t, []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
				{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"169.254.169.254/32"}}},
				{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"fd00:ec2::254/128"}}},
			}}}, p.Spec.Egress, "all but the metadata services of clouds")
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		require.NoError(t, err)
		ports := of(t, objects, selector)
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				for _, d := range deployments(t, objects) {
					if _, there := ports[d.Name+"/"+port.Port.String()]; !there {
						continue
					}
					if len(rule.From) == 0 {
						everybody = append(everybody, d.Name+"/"+port.Port.String())
					} else {
						require.Equal(t, []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, rule.From)
						cluster = append(cluster, d.Name+"/"+port.Port.String())
					}
				}
			}
		}
	}
	slices.Sort(everybody)
	slices.Sort(cluster)
	return everybody, cluster
}

func TestNetworkPoliciesLetInWhatIsServed(t *testing.T) {
	broker := []string{"liqo-broker/health", "liqo-broker/kubelet"}
	catalog := []string{"liqo-broker-catalog/catalog", "liqo-broker-catalog/catalog-health"}
	for service, want := range map[string]struct{ everybody, cluster []string }{
		Orchestrator: {broker, []string{"liqo-broker/metrics"}},
		Catalog: {
			slices.Concat(catalog, broker),
			[]string{"liqo-broker-catalog/catalog-metrics", "liqo-broker/metrics"},
		},
		Aggregator: {
			[]string{"liqo-broker/health", "liqo-broker/ipam", "liqo-broker/kubelet"},
			[]string{"liqo-broker/metrics"},
		},
		All: {
			slices.Concat(catalog, []string{"liqo-broker/health", "liqo-broker/ipam", "liqo-broker/kubelet"}),
			[]string{"liqo-broker-catalog/catalog-metrics", "liqo-broker/metrics"},
		},
		Sidecar: {
			[]string{"liqo-broker/catalog", "liqo-broker/catalog-health", "liqo-broker/health", "liqo-broker/ipam", "liqo-broker/kubelet"},
			[]string{"liqo-broker/catalog-metrics", "liqo-broker/metrics"},
		},
	} {
		everybody, cluster := admitted(t, rendered(t, service))
		assert.Equal(t, want.everybody, everybody, service)
		assert.Equal(t, want.cluster, cluster, service)
	}
}
