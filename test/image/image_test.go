package image

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

func TestTheImage(t *testing.T) {
	// Two directories, and all other differences between two machines that the test can create.
	here, there := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "a", "longer", "name")
	cloneTo(t, here)
	cloneTo(t, there)
	file, digest := makeImage(t, here)
	again, digestAgain := makeImage(t, there, "TZ=Asia/Tokyo", "LC_ALL=C", "GOFLAGS=-tags=noise", "GOAMD64=v3")
	require.Equal(t, digest, digestAgain, "the same commit has the same digest")
	require.Equal(t, there, filepath.Dir(filepath.Dir(again)))

	opened := openArchive(t, file)
	manifest, config, digestInside := opened.only()
	require.Equal(t, digest, digestInside)
	commit := strings.TrimSpace(command(t.Context(), t, here, nil, "git", "rev-parse", "HEAD"))
	t.Run("its configuration has the version", func(t *testing.T) { checkConfig(t, config, commit) })

	if os.Geteuid() != 0 {
		t.Skip("not root, who alone may give files to others and change the root directory: the image is not run")
	}
	c := container{opened.rootFS(manifest), config.Config}
	t.Run("who runs in it can write to /tmp and nothing else", func(t *testing.T) { checkWritable(t, c) })
	t.Run("it runs", func(t *testing.T) { checkRuns(t, c, config) })
}

func checkConfig(t *testing.T, config specs.Image, commit string) {
	t.Helper()
	require.Equal(t, "linux", config.OS)
	require.Equal(t, runtime.GOARCH, config.Architecture)
	require.Equal(t, []string{"/usr/bin/liqo-broker-vk"}, config.Config.Entrypoint)
	require.Empty(t, config.Config.Cmd)
	require.Equal(t, "65532:65532", config.Config.User)

	labels := config.Config.Labels
	require.Equal(t, commit, labels[specs.AnnotationRevision])
	require.NotEmpty(t, labels[specs.AnnotationVersion])
	require.Equal(t, "liqo-broker-vk", labels[specs.AnnotationTitle])
	require.Equal(t, "https://github.com/capacitorset/liqo-broker-vk", labels[specs.AnnotationSource])
	require.Equal(t, "Apache-2.0", labels[specs.AnnotationLicenses])
	require.NotEmpty(t, labels[specs.AnnotationDescription])
	require.Equal(t, config.Created.UTC().Format("2006-01-02T15:04:05Z"), labels[specs.AnnotationCreated])
}
