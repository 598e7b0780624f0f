package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/docs"
)

// The documented example of a kustomization has the described effect.
func TestTheExampleOfAKustomizationWorks(t *testing.T) {
	document, err := docs.Read("../../docs/install.md")
	require.NoError(t, err)
	var example string
	for _, block := range document.Blocks {
		if strings.Contains(block.Text, "kind: Kustomization") {
			require.Empty(t, example, "one example")
			example = block.Text
		}
	}
	const remote = "https://github.com/capacitorset/liqo-broker-vk//deploy/"
	directory := t.TempDir()
	root, err := filepath.Abs(string(here))
	require.NoError(t, err)
	local, err := filepath.Rel(directory, root)
	require.NoError(t, err)
	require.Contains(t, example, remote+"kustomize/all?ref=main\n")
	example = strings.ReplaceAll(strings.ReplaceAll(example, remote, local+"/"), "?ref=main", "")
	require.NoError(t, os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(example), 0o600))

	objects, err := Directory(directory).Kustomized(".")
	require.NoError(t, err)
	const image = "registry.example.com/liqo-broker-vk:v0.1.0"
	for _, d := range deployments(t, objects) {
		assert.Equal(t, image, d.Spec.Template.Spec.Containers[0].Image, d.Name)
	}
	options := find[offloadingv1beta1.VkOptionsTemplate](t, objects, "VkOptionsTemplate", "virtual-kubelet-default")
	assert.Equal(t, image, options.Spec.ContainerImage)
	service := find[corev1.Service](t, objects, "Service", "liqo-network-manager")
	assert.Equal(t, corev1.ServiceTypeLoadBalancer, service.Spec.Type)
	assert.Len(t, objects, len(kustomized(t, "kustomize/all")))
}
