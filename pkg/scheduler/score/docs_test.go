package score

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const policies = "../../../docs/policies.md"

// The API server accepts every score and no other value; and a policy may name all of them.
func TestTheCRDHasEveryScoreAndUptimeWindow(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/crds/brokering.liqo.io_placementpolicies.yaml")
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &crd))
	enumOf := func(schema apiextensionsv1.JSONSchemaProps) []string {
		var values []string
		for _, value := range schema.Enum {
			var text string
			require.NoError(t, yaml.Unmarshal(value.Raw, &text))
			values = append(values, text)
		}
		return values
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	weights := spec["weights"]
	require.Equal(t, Plugins(), enumOf(weights.Items.Schema.Properties["name"]))
	require.GreaterOrEqual(t, *weights.MaxItems, int64(len(Plugins())))
	require.Equal(t, UptimeWindows(), enumOf(spec["uptimeWindow"]))
}

// With UPDATE=1 the table is written.
func TestEveryScoreIsDocumented(t *testing.T) {
	text, err := os.ReadFile(policies)
	require.NoError(t, err)
	files, err := filepath.Glob("plugin_*.go")
	require.NoError(t, err)
	require.Len(t, files, len(plugins), "run make generate")
	var rows strings.Builder
	for _, s := range plugins {
		require.Contains(t, files, "plugin_"+s.name+".go")
		fmt.Fprintf(&rows, "| `%s` | %d | %s | %s |\n", s.name, s.weight, s.best, s.how)
	}
	table := regexp.MustCompile(`(?m)(^\| Score \|.*\n\|[-|]+\n)((?:\|.*\n)+)`)
	documented := table.FindSubmatch(text)
	require.NotNil(t, documented)
	if os.Getenv("UPDATE") != "" {
		text = table.ReplaceAll(text, []byte("${1}"+rows.String()))
		require.NoError(t, os.WriteFile(policies, text, 0o600))
		return
	}
	require.Equal(t, rows.String(), string(documented[2]), "run UPDATE=1 go test ./pkg/scheduler/score/")
}
