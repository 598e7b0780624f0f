package scheduler

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryFilterAndScoreIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/policies.md")
	require.NoError(t, err)
	for f := Disabled; f <= Failed; f++ {
		require.Contains(t, string(text), "`"+f.String()+"`")
	}
	documented := make(map[string]string)
	rows := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| ([0-9]+) \\|")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = row[2]
	}
	expected := make(map[string]string)
	for _, name := range Plugins() {
		expected[name] = "0"
	}
	for _, w := range DefaultWeights() {
		expected[w.Plugin] = strconv.Itoa(int(w.Weight))
	}
	require.Equal(t, expected, documented)
}
