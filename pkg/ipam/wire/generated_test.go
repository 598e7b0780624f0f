package wire_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The generated files match the current output of the generator.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./protogen", filepath.Join(here, "remote_ipam.proto"), dir)
	cmd.Dir = filepath.Join("..", "..", "..", "tools")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	for _, name := range []string{"remote_ipam.pb.go", "remote_ipam_grpc.pb.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is out of date: run make generate", name)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 2)
}
