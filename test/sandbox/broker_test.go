package sandbox

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
)

// With another name, the broker's arguments, its roles and the virtual kubelets' arguments have the new Node name;
// nothing else changes.
func TestManifestsFollowTheNodeName(t *testing.T) {
	c := &Cluster{Role: RoleBroker, sandbox: &Sandbox{opts: Options{BrokerNode: "pool", BrokerArgs: []string{"--workers=1"}}}}
	names, args, host := 0, 0, 0
	var expressions []string
	for _, file := range []string{"broker.yaml", "virtual-kubelet-options.yaml", "crds", "guard.yaml"} {
		objects, err := readManifests(filepath.Join(binaries.ProductRoot(), "deploy", file))
		require.NoError(t, err)
		require.NotEmpty(t, objects)
		for _, o := range objects {
			name := o.GetName()
			require.NoError(t, c.adaptManifest(o))
			assert.Equal(t, name, o.GetName())
			n, a := count(o.Object)
			names, args = names+n, args+a
			for _, kind := range []string{"variables", "validations"} {
				list, _, err := unstructured.NestedSlice(o.Object, "spec", kind)
				require.NoError(t, err)
				for _, item := range list {
					expressions = append(expressions, item.(map[string]any)["expression"].(string))
				}
			}
			if o.GetKind() == "Deployment" {
				selector, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "spec", "nodeSelector")
				require.NoError(t, err)
				host += len(selector)
				containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				require.NoError(t, err)
				last := containers[0].(map[string]any)["args"].([]any)
				assert.Equal(t, "--workers=1", last[len(last)-1])
			}
		}
	}
	assert.Equal(t, 3, names, "roles for the Node, its status and its lease")
	assert.Equal(t, 2, args, "the broker and the virtual kubelets")
	assert.Equal(t, 1, host)
	assert.Contains(t, expressions, "'system:node:pool'", "whose certificate the broker approves")
	assert.Contains(t, expressions, "variables.allowed || variables.node in ['', 'pool']", "which node pods of consumers name")
}

// count counts the node name in roles and in arguments.
func count(value any) (names, args int) {
	switch v := value.(type) {
	case map[string]any:
		for _, child := range v {
			n, a := count(child)
			names, args = names+n, args+a
		}
	case []any:
		for _, child := range v {
			switch child {
			case "pool":
				names++
			case "--broker-node=pool":
				args++
			}
			n, a := count(child)
			names, args = names+n, args+a
		}
	}
	return names, args
}
