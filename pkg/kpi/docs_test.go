package kpi

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With UPDATE=1 the rows are written.
func TestEveryKPIIsDocumented(t *testing.T) {
	const name = "../../docs/policies.md"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var rows strings.Builder
	for _, k := range All() {
		fmt.Fprintf(&rows, "| `provider.kpis.%s` | double | %s | `%s` |\n", k.Name, k.Unit, strings.ReplaceAll(k.Example, "|", `\|`))
	}
	table := regexp.MustCompile("(?m)(?:^\\| `provider\\.kpis\\..*\n)+")
	documented := table.Find(text)
	require.NotNil(t, documented)
	if os.Getenv("UPDATE") != "" {
		text = table.ReplaceAllLiteral(text, []byte(rows.String()))
		require.NoError(t, os.WriteFile(name, text, 0o600))
		return
	}
	require.Equal(t, rows.String(), string(documented), "run UPDATE=1 go test ./pkg/kpi/")
}
