package image

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/webhooks/virtualnode"
)

// liqosTemplate returns the VkOptionsTemplate that Liqo's Helm chart installs for our image.
func liqosTemplate(t *testing.T) *offloadingv1beta1.VkOptionsTemplate {
	t.Helper()
	source := strings.TrimSpace(command(t.Context(), t, filepath.Join(repository(), "test"), nil,
		"go", "list", "-m", "-f", "{{.Dir}}", "github.com/liqotech/liqo"))
	chart, err := loader.LoadDir(filepath.Join(source, "deployments", "liqo"))
	require.NoError(t, err)
	values, err := chartutil.ToRenderValues(chart, map[string]any{
		"tag":       "v1.2.0",
		"discovery": map[string]any{"config": map[string]any{"clusterID": "home"}},
		"virtualKubelet": map[string]any{
			"image": map[string]any{"name": "registry.test/liqo-broker-vk", "version": "v1"},
			// The default port may already be in use on this machine.
			"extra": map[string]any{"args": []any{"--health-probe-address=127.0.0.1:0"}},
		},
	}, chartutil.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true}, chartutil.DefaultCapabilities)
	require.NoError(t, err)
	files, err := engine.Render(chart, values)
	require.NoError(t, err)
	template := &offloadingv1beta1.VkOptionsTemplate{}
	require.NoError(t, yaml.Unmarshal([]byte(files["liqo/templates/liqo-vk-options-template.yaml"]), template))
	template.Namespace = "liqo"
	return template
}

// liqosContainer returns the container that liqo-controller-manager runs for a VirtualNode with all options: Liqo's own
// webhook completes the VirtualNode from the template, and the controller creates a Deployment from the result.
func liqosContainer(t *testing.T) corev1.Container {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	template := liqosTemplate(t)
	webhook := virtualnode.New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(template).Build(), "home",
		[]string{"10.244.0.0/16"}, "liqo", &corev1.ObjectReference{Namespace: template.Namespace, Name: template.Name})

	made, err := json.Marshal(&offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-provider", Name: "provider"},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID:           "provider",
			KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig-provider"},
			StorageClasses:      []liqov1beta1.StorageType{{StorageClassName: "fast", Default: true}},
			IngressClasses:      []liqov1beta1.IngressType{{IngressClassName: "nginx"}},
			LoadBalancerClasses: []liqov1beta1.LoadBalancerType{{LoadBalancerClassName: "lb"}},
		},
	})
	require.NoError(t, err)
	response := webhook.Handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: made},
	}})
	require.True(t, response.Allowed, response.Result)
	changes, err := json.Marshal(response.Patches)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(changes)
	require.NoError(t, err)
	completed, err := patch.Apply(made)
	require.NoError(t, err)

	containers := read[offloadingv1beta1.VirtualNode](t, completed).Spec.Template.Spec.Template.Spec.Containers
	require.Len(t, containers, 1)
	return containers[0]
}
