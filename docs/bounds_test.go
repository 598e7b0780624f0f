package docs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

const bounds = "bounds.md"

// bound is one number that an object may not exceed.
type bound struct {
	of, most string
	// guard is a part of the guard's policies that has the number; "" if the code has it.
	guard string
	// says is where the one who exceeds it finds the reason.
	says string
}

// The reasons that a consumer or an administrator sees.
const (
	onPod       = "an event `FailedReflection` on the consumer's pod"
	onObject    = "an event `FailedReflection` on the consumer's object"
	onCondition = "an event `FailedAssignment` on the consumer's pod, and the condition of the broker's"
	onSlice     = "an error of Liqo's replicator in the consumer, and none on the ResourceSlice"
	toCaller    = "the answer to the request"
)

func bytesOf(n int) string {
	if n%1024 == 0 {
		return strconv.Itoa(n/1024) + " KiB"
	}
	return strconv.Itoa(n) + " bytes"
}

// allBounds is the one place with the bounds of documents: the numbers are from the code, and the policies must have
// theirs.
func allBounds(t *testing.T) []bound {
	t.Helper()
	policy := policySchema(t)
	items := func(field string) string { return strconv.FormatInt(*policy[field].MaxItems, 10) }
	characters := func(field string) string { return strconv.FormatInt(*policy[field].MaxLength, 10) + " characters" }
	return []bound{
		{
			"name of a namespace at a provider: the consumer's, its id and the broker's id, with dashes between them",
			strconv.Itoa(content.DNS1123LabelMaxLength) + " characters", "", onCondition,
		},
		{
			"name of a namespace in the broker's cluster: the consumer's and its id",
			strconv.Itoa(content.DNS1123LabelMaxLength) + " characters", "size(variables.mapping[k]) <= 127",
			"`CreationLoopBackOff` in the status of the consumer's NamespaceOffloading",
		},
		{"namespaces of a consumer", "2000", "size(variables.mapping) <= 2000", "an error of Liqo's replicator in the consumer"},
		{"annotations of a pod", "1000, 64 KiB in all", "64 KiB in all", onPod},
		{
			"annotations of other objects", "1000, 64 KiB in all; of Secrets and ConfigMaps 256 KiB",
			"request.resource.resource in ['secrets', 'configmaps'] ? 262144", onObject,
		},
		{"labels of an object", "1000", "size(variables.labels) <= 1000", onObject},
		{"containers of a pod", "100", "size(variables.every) <= 100", onPod},
		{"volumes of a pod", "500", "size(variables.pod.?volumes.orValue([])) <= 500", onPod},
		{
			"variables, and commands and arguments of a pod", "5000 each, 256 KiB in all with four times the annotations",
			"variables.bytes <= 262144", onPod,
		},
		{"terms of affinity of a pod that is forwarded", "200", "size(variables.weighted) <= 200", onPod},
		{
			"node selector, affinity and spreads of a pod", bytesOf(constraints.MaxSize) + ", " + strconv.Itoa(constraints.MaxTerms) +
				" terms about pods, " + strconv.Itoa(constraints.MaxRequirements) + " requirements on nodes", "", onCondition,
		},
		{"filter of a pod", strconv.Itoa(cel.MaxLength) + " characters", "", onCondition},
		{
			"labels, annotations and attributes that an expression reads",
			fmt.Sprintf("%d, each of %s", values.MaxTexts, bytesOf(values.MaxText)), "", "the expression sees the others as missing",
		},
		{"amounts of a ResourceSlice", "200, of 30 digits", "variables.written.all(m, size(m) <= 200)", onSlice},
		{"endpoints of a reflected EndpointSlice", "1000", "size(object.?spec.?template.?endpoints.orValue([])) <= 1000", onObject},
		{"consumers and providers of a PlacementPolicy", items("consumers"), "", toCaller},
		{"weights of a PlacementPolicy", items("weights"), "", toCaller},
		{"filter and score of a PlacementPolicy", characters("filter"), "", toCaller},
		{
			"a request to the catalog", fmt.Sprintf("%s of body, %s of URL", bytesOf(middleware.MaxBody), bytesOf(middleware.MaxURL)),
			"", toCaller,
		},
	}
}

func policySchema(t *testing.T) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile("../deploy/crds/brokering.liqo.io_placementpolicies.yaml")
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &crd))
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
}

// The table has the numbers of the code and of the policies. With UPDATE=1 it is written.
func TestBounds(t *testing.T) {
	guard, err := os.ReadFile("../deploy/guard.yaml")
	require.NoError(t, err)
	policies := strings.Join(strings.Fields(string(guard)), " ")
	var table strings.Builder
	table.WriteString("| Bound of | At most | Who exceeds it finds the reason in |\n|---|---|---|\n")
	for _, b := range allBounds(t) {
		require.Contains(t, policies, b.guard, b.of)
		fmt.Fprintf(&table, "| %s | %s | %s |\n", b.of, b.most, b.says)
	}
	text, err := os.ReadFile(bounds)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), "| Bound of |")
	require.True(t, found)
	_, after, _ := strings.Cut(rest, "\n\n")
	written := before + table.String() + "\n" + after
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(bounds, []byte(written), 0o600))
		return
	}
	require.Equal(t, string(text), written, "run UPDATE=1 go test ./docs/")
}
