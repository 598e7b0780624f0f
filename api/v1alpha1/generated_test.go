package v1alpha1_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The generated files are those that the generator writes now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	crds := filepath.Join("..", "..", "deploy", "crds")
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../tools/go.mod", "controller-gen",
		"object", "crd", "paths=.", "output:object:dir="+dir, "output:crd:dir="+filepath.Join(dir, "crds"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	freshOf := map[string]string{"zz_generated.deepcopy.go": filepath.Join(dir, "zz_generated.deepcopy.go")}
	for _, resource := range []string{"providerclusters", "placementpolicies", "consumerclusters"} {
		file := "brokering.liqo.io_" + resource + ".yaml"
		freshOf[filepath.Join(crds, file)] = filepath.Join(dir, "crds", file)
	}
	for committed, fresh := range freshOf {
		want, err := os.ReadFile(fresh)
		require.NoError(t, err)
		got, err := os.ReadFile(committed)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is out of date: run make generate", committed)
	}
	for _, where := range []string{crds, filepath.Join(dir, "crds")} {
		files, err := filepath.Glob(filepath.Join(where, "*.yaml"))
		require.NoError(t, err)
		assert.Len(t, files, 3, where)
	}
}
