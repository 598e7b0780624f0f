package liqochart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capacitorset/liqo-broker-vk/docs"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
)

func rendered(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	source, err := binaries.LiqoSource(t.Context(), binaries.LiqoVersion)
	require.NoError(t, err)
	objects, err := Render(source, map[string]any{
		"tag": "v1", "discovery": map[string]any{"config": map[string]any{"clusterID": "here"}},
		"ipam": map[string]any{"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.101.0.0/16"},
	})
	require.NoError(t, err)
	return objects
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	require.Failf(t, "not rendered", "%s %s", kind, name)
	return nil
}

func TestWebhookConfigurationsComeLast(t *testing.T) {
	objects := rendered(t)
	last := objects[len(objects)-2:]
	for _, o := range last {
		assert.True(t, strings.HasSuffix(o.GetKind(), "WebhookConfiguration"), o.GetKind())
	}
}

func TestKeepDropsWhatCannotRun(t *testing.T) {
	for _, o := range Keep(rendered(t), false) {
		assert.NotContains(t, []string{"DaemonSet", "Job", "CronJob", "FirewallConfiguration"}, o.GetKind(), o.GetName())
		assert.NotContains(t, o.GetName(), "pre-delete")
	}
	find(t, Keep(rendered(t), false), "VkOptionsTemplate", "virtual-kubelet-default")
}

func TestAdaptChangesPortsAndWebhooks(t *testing.T) {
	objects := Keep(rendered(t), false)
	ports := HostPorts{Webhook: 1001, WebhookHealth: 1002, ControllerManagerHealth: 1003, IPAM: 1004}
	require.True(t, slices.ContainsFunc(objects, isCertificate), "the webhook needs it where it is called by its Service")
	objects, err := Adapt(objects, ports, []byte("CA"))
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(objects, isCertificate), "the webhook would replace the authority that the sandbox wrote")

	hooks, _, err := unstructured.NestedSlice(find(t, objects, "MutatingWebhookConfiguration", "liqo-webhook").Object, "webhooks")
	require.NoError(t, err)
	for _, h := range hooks {
		url, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "url")
		assert.True(t, strings.HasPrefix(url, "https://127.0.0.1:1001/mutate/"), url)
	}
	args := fmt.Sprint(find(t, objects, "Deployment", "liqo-controller-manager").Object)
	assert.Contains(t, args, "--ipam-server=127.0.0.1:1004")
	assert.Contains(t, args, "--health-probe-address=127.0.0.1:1003")
	assert.NotContains(t, fmt.Sprint(find(t, objects, "Deployment", "liqo-webhook").Object), "--secret-name")
}

func TestAdaptLeavesNoNullInTemplatesOfGateways(t *testing.T) {
	objects := Keep(rendered(t), true)
	objects, err := Adapt(objects, HostPorts{}, nil)
	require.NoError(t, err)
	for kind, name := range map[string]string{
		"WgGatewayServerTemplate": "wireguard-server", "WgGatewayClientTemplate": "wireguard-client",
	} {
		assertNoNull(t, kind, find(t, objects, kind, name).Object["spec"])
	}
}

func assertNoNull(t *testing.T, path string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			assertNoNull(t, path+"."+key, child)
		}
	case []any:
		assert.NotNil(t, v, path)
		for _, child := range v {
			assertNoNull(t, path+"[]", child)
		}
	default:
		assert.NotNil(t, v, path)
	}
}

func TestAdaptV0ChangesPortsWebhooksAndCertificates(t *testing.T) {
	source, err := binaries.LiqoSource(t.Context(), binaries.LiqoV0Version)
	require.NoError(t, err)
	crds, err := CRDs(source)
	require.NoError(t, err)
	require.NotEmpty(t, crds)
	objects, err := Render(source, map[string]any{
		"tag": binaries.LiqoV0Version, "discovery": map[string]any{"config": map[string]any{"clusterName": "here"}},
		"networkManager": map[string]any{"config": map[string]any{"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.101.0.0/16"}},
	})
	require.NoError(t, err)
	objects = KeepV0(objects)
	require.NoError(t, AdaptV0(objects, PortsV0{Webhook: 1001, Health: 1002, Auth: 1003, IPAM: 1004}, []byte("CA")))

	manager := fmt.Sprint(find(t, objects, "Deployment", "liqo-controller-manager").Object)
	for _, want := range []string{
		"--kubelet-ipam-server=127.0.0.1:1004", "--health-probe-address=127.0.0.1:1002",
		"--kubelet-image=ghcr.io/liqotech/virtual-kubelet:v0.9.4",
		"secretName:" + WebhookSecretV0, "type:Recreate",
	} {
		assert.Contains(t, manager, want)
	}
	auth := fmt.Sprint(find(t, objects, "Deployment", "liqo-auth").Object)
	assert.Contains(t, auth, "--address=127.0.0.1:1003")
	assert.Contains(t, auth, "secretName:"+AuthSecretV0)
	assert.NotContains(t, auth, "openssl")
	assert.Contains(t, fmt.Sprint(find(t, objects, "Deployment", "liqo-network-manager").Object), binaries.IPAMPortVariable)
	find(t, objects, "Deployment", "liqo-crd-replicator")
	for _, o := range objects {
		assert.False(t, o.GetKind() == "Deployment" && o.GetName() == "liqo-gateway", "it needs a kernel")
	}
}

func TestTheHelmValuesOfTheDocumentChooseTheVirtualKubeletV0(t *testing.T) {
	source, err := binaries.LiqoSource(t.Context(), binaries.LiqoV0Version)
	require.NoError(t, err)
	for tag, want := range map[string]string{
		binaries.LiqoV0Version: "--kubelet-image=<your registry>/liqo-broker-vk:" + binaries.LiqoV0Version,
		"0123abcd":             "--kubelet-image=<your registry>/liqo-broker-vk-ci:0123abcd",
	} {
		values := documentedValuesV0(t)
		values["tag"] = tag
		values["discovery"] = map[string]any{"config": map[string]any{"clusterName": "here"}}
		values["networkManager"] = map[string]any{"config": map[string]any{"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.101.0.0/16"}}
		objects, err := Render(source, values)
		require.NoError(t, err)
		containers, _, err := unstructured.NestedSlice(
			find(t, objects, "Deployment", "liqo-controller-manager").Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		args := containers[0].(map[string]any)["args"]
		assert.Contains(t, args, want)
		assert.Contains(t, args, "--kubelet-extra-args=--remote-ipam=server=<address>:6000,--enable-apiserver-support=true")
	}
}

// documentedValuesV0 are the values in docs/virtual-kubelet.md.
func documentedValuesV0(t *testing.T) (values map[string]any) {
	t.Helper()
	document, err := docs.Read("../../../../docs/virtual-kubelet.md")
	require.NoError(t, err)
	for i := range document.Blocks {
		if b := &document.Blocks[i]; b.Language == "yaml" && strings.Contains(b.Text, "imageName") {
			require.NoError(t, yaml.Unmarshal([]byte(b.Text), &values))
			return values
		}
	}
	require.Fail(t, "docs/virtual-kubelet.md has no values of Liqo v0.x")
	return nil
}

func isCertificate(o *unstructured.Unstructured) bool { return o.GetName() == WebhookCerts }
