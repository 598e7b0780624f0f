package passed

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASuiteIsRememberedUntilItsSourcesChange(t *testing.T) {
	sources, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(sources, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	passed := func() bool {
		t.Helper()
		s, err := Of(kept, "suite", filepath.Join(sources, "scenarios_test.go"), filepath.Join(sources, "lib"))
		require.NoError(t, err)
		when, err := s.When()
		require.NoError(t, err)
		return !when.IsZero()
	}
	keep := func() {
		t.Helper()
		s, err := Of(kept, "suite", filepath.Join(sources, "scenarios_test.go"), filepath.Join(sources, "lib"))
		require.NoError(t, err)
		require.NoError(t, s.Keep())
		when, err := s.When()
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), when, time.Minute)
	}
	write("scenarios_test.go", "one")
	write("lib/a.go", "one")
	write("lib/deep/b.go", "one")
	require.False(t, passed())
	keep()
	require.True(t, passed())

	write("lib/a_test.go", "a test of what the suite uses")
	write("lib/README.md", "a document")
	write("other_test.go", "another suite")
	require.True(t, passed())

	for _, change := range []func(){
		func() { write("scenarios_test.go", "two") },
		func() { write("lib/deep/b.go", "two") },
		func() { write("lib/new.yaml", "") },
		func() {
			require.NoError(t, os.Rename(filepath.Join(sources, "lib/a.go"), filepath.Join(sources, "lib/c.go")))
		},
	} {
		change()
		require.False(t, passed())
		keep()
	}
	write("scenarios_test.go", "one")
	require.False(t, passed(), "that was with other files in lib")
}

func TestSourcesAreThere(t *testing.T) {
	_, err := Of(t.TempDir(), "suite", filepath.Join(t.TempDir(), "gone.go"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
