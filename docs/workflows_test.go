package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pin is an action by its commit, with the version as a comment, which Renovate updates together.
var pin = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// A tag of an action can be moved to other code.
func TestActionsArePinnedByTheirCommit(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yaml")
	require.NoError(t, err)
	commits := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			_, action, found := strings.Cut(line, "uses:")
			if !found {
				continue
			}
			action = strings.TrimSpace(action)
			require.Regexp(t, pin, action, file)
			name, version, _ := strings.Cut(action, "@")
			repository := strings.Join(strings.Split(name, "/")[:2], "/")
			if other, known := commits[repository]; known {
				require.Equal(t, other, version, "%s: all workflows have one version of %s", file, repository)
			}
			commits[repository] = version
		}
	}
	require.NotEmpty(t, commits)
}
