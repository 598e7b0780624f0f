package verdict

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// policies.md has the meaning of each filter, operating.md the remedy.
func TestEveryFilterIsDocumented(t *testing.T) {
	for _, document := range []string{"policies.md", "operating.md"} {
		text, err := os.ReadFile("../../../docs/" + document)
		require.NoError(t, err)
		for f := Disabled; f <= Failed; f++ {
			require.True(t, strings.Contains(string(text), "`"+f.String()+"`"), "%s has no row of %q", document, f)
		}
	}
}

func TestFiltersOfSlicesAreReadBack(t *testing.T) {
	for f := Passed; f <= Failed; f++ {
		got, known := ParseSliceFilter(f.String())
		if ServesAnotherNode <= f && f <= NotReady {
			require.True(t, known, f)
			require.Equal(t, f, got)
		} else {
			require.False(t, known, "%s is no filter of a slice", f)
		}
	}
	got, known := ParseSliceFilter("")
	require.True(t, known)
	require.Equal(t, Passed, got)
}
