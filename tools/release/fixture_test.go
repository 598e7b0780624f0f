package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/stretchr/testify/require"
)

// clone is a repository that is built like ours, but very quickly.
type clone struct {
	t   *testing.T
	dir string
}

func newClone(t *testing.T) clone {
	t.Helper()
	c := clone{t, t.TempDir()}
	c.write("go.mod", "module example.test/small\n\ngo 1.25\n")
	c.write("LICENSE", "Do what you like.\n")
	c.write(".gitignore", "/dist/\n")
	c.write("cmd/liqo-broker-vk/main.go",
		"package main\n\nvar version, commit string\n\nfunc main() { println(version, commit) }\n")
	c.write("kubelet-v0/go.mod", "module example.test/small/kubelet-v0\n\ngo 1.25\n")
	c.write("kubelet-v0/main.go", "package main\n\nvar version, commit string\n\nfunc main() { println(version, commit) }\n")
	c.git("init", "--quiet")
	c.commit("Begin")
	return c
}

func (c clone) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o644))
}

func (c clone) git(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.test", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func (c clone) commit(subject string) {
	c.t.Helper()
	c.git("add", "--all")
	c.git("commit", "--quiet", "--allow-empty", "--message", subject)
}

// again returns another clone of the repository, in another directory.
func (c clone) again() clone {
	c.t.Helper()
	other := clone{c.t, filepath.Join(c.t.TempDir(), "somewhere", "quite", "different")}
	c.git("clone", "--quiet", c.dir, other.dir)
	return other
}

// image builds and returns the archive's file, and the output.
func (c clone) image(args ...string) (archive, said string) {
	c.t.Helper()
	var out strings.Builder
	require.NoError(c.t, run(c.t.Context(), append([]string{"-source=" + c.dir}, args...), &out))
	archive, said, _ = strings.Cut(strings.TrimSpace(out.String()), "\n")
	return archive, said
}

// unpack returns the only index of an archive, and its descriptor in the archive.
func unpack(t *testing.T, archive string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Open(archive)
	require.NoError(t, err)
	defer file.Close()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			require.NoError(t, os.Mkdir(path, 0o755))
			continue
		}
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	top, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := top.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index, manifest.Manifests[0]
}

func mustPlatform(t *testing.T, name string) v1.Platform {
	t.Helper()
	platform, err := v1.ParsePlatform(name)
	require.NoError(t, err)
	return *platform
}

// smallLayer is the file of a layer.
func smallLayer(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "layer.tar.gz")
	require.NoError(t, writeLayer(file, []entry{{name: "etc/", mode: 0o755}}, time.Unix(0, 0)))
	return file
}
