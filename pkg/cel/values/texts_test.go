package values

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTextsAreTheFirstByTheirKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOfN(rapid.StringMatching("[a-d]{1,6}"), rapid.Just("x"), 0, 60).Draw(t, "texts")
		most := rapid.IntRange(1, 20).Draw(t, "most")
		want := slices.Sorted(maps.Keys(texts))
		require.True(t, slices.Equal(want[:min(len(want), most)], smallest(slices.Collect(maps.Keys(texts)), most)))
	})
	seen := NewTexts(map[string]string{"a": "1", "b": strings.Repeat("x", MaxText+1)})
	require.Equal(t, map[string]string{"a": "1"}, seen.Value())
}
