package cel

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
)

func policies(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/policies.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheDocumentedFiltersCompileAndNameEveryVariable(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `((?:provider|pod)\\.[^`]+)` \\|.*\\| `(.*)` \\|$").
		FindAllStringSubmatch(policies(t), -1)
	documented := make(map[string]bool)
	for _, row := range rows {
		variable, example := row[1], strings.ReplaceAll(row[2], `\|`, "|")
		documented[variable] = true
		require.Contains(t, example, strings.TrimPrefix(variable, "provider.resources"))
		p, err := NewFilter(example)
		require.NoError(t, err)
		_, err = p.Filter(variables())
		require.NoError(t, err)
	}
	expected := make(map[string]bool)
	for prefix, s := range map[string]*values.Schema{
		"provider.": providerSchema, "provider.kpis.": kpisSchema, "provider.resources.": resourcesSchema, "pod.": podSchema,
	} {
		for _, name := range s.Names() {
			if name != "kpis" && name != "resources" {
				expected[prefix+name] = true
			}
		}
	}
	require.Equal(t, expected, documented)
}

func TestTheDocumentedScoresCompile(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```cel\n(.*?)\n```").FindAllStringSubmatch(policies(t), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		p, err := NewScore(block[1])
		require.NoError(t, err)
		_, err = p.Score(variables())
		require.NoError(t, err)
	}
}
