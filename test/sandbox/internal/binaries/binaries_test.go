package binaries

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Sources whose versions are set in code must have the versions in go.mod, because the sandbox's own code uses the same
// packages.
func TestVersionsAreThoseOfTheModule(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(moduleRoot(), "go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(data), "k8s.io/kubernetes "+KubernetesVersion+"\n")
	assert.Contains(t, string(data), "github.com/liqotech/liqo "+LiqoVersion+"\n")
	product, err := os.ReadFile(filepath.Join(ProductRoot(), "go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(product), "github.com/liqotech/liqo "+LiqoVersion+"\n")
}

func TestALaterKubernetesHasItsModuleFile(t *testing.T) {
	for _, version := range LaterKubernetes {
		data, err := os.ReadFile(filepath.Join(moduleRoot(), "sandbox/kubernetes", version+".mod"))
		require.NoError(t, err)
		assert.Contains(t, string(data), "k8s.io/kubernetes "+version+"\n")
		assert.FileExists(t, filepath.Join(moduleRoot(), "sandbox/kubernetes", version+".sum"))
	}
	files, err := filepath.Glob(filepath.Join(moduleRoot(), "sandbox/kubernetes", "*"))
	require.NoError(t, err)
	assert.Len(t, files, 2*len(LaterKubernetes), "nothing is left of a version before")
}

func TestCacheDirFollowsTheEnvironment(t *testing.T) {
	t.Setenv("LIQO_BROKER_VK_CACHE", "/somewhere/else")
	dir, err := CacheDir()
	require.NoError(t, err)
	assert.Equal(t, "/somewhere/else", dir)
}

func TestCacheKeyIsStable(t *testing.T) {
	a, err := cacheKey()
	require.NoError(t, err)
	b, err := cacheKey()
	require.NoError(t, err)
	assert.Equal(t, a, b)
	assert.Len(t, a, 16)
}

// Kubernetes' libraries are compiled once for all programs of a sandbox. Liqo's virtual kubelet keeps the version of
// virtual-kubelet that Liqo chose.
func TestOtherModulesUseOurLaterVersionsOfLibraries(t *testing.T) {
	src, err := LiqoSource(t.Context(), LiqoVersion)
	require.NoError(t, err)
	ours, err := versionsOf(t.Context(), moduleRoot())
	require.NoError(t, err)
	later, err := laterVersions(t.Context(), src)
	require.NoError(t, err)
	assert.Contains(t, later, "-require=k8s.io/client-go@"+ours["k8s.io/client-go"])
	for _, arg := range later {
		assert.NotContains(t, arg, "virtual-kubelet")
		assert.NotContains(t, arg, "liqotech")
	}
}
