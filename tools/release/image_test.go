package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

func TestTheArchiveHasAnImageForEachPlatform(t *testing.T) {
	c := newClone(t)
	archive, _ := c.image()
	index, _ := unpack(t, archive)
	require.NoError(t, validate.Index(index), "every digest and size is right")

	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, types.OCIImageIndex, manifest.MediaType)
	machines := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	require.Len(t, manifest.Manifests, len(machines))
	for _, m := range manifest.Manifests {
		require.Equal(t, types.OCIManifestSchema1, m.MediaType)
		require.Empty(t, m.ArtifactType)
		machine, known := machines[m.Platform.String()]
		require.True(t, known, m.Platform)
		image, err := index.Image(m.Digest)
		require.NoError(t, err)
		checkConfig(t, image, *m.Platform, c.git("rev-parse", "HEAD"))

		binary, err := elf.NewFile(bytes.NewReader(files(t, image)["usr/bin/liqo-broker-vk"].content))
		require.NoError(t, err)
		require.Equal(t, machine, binary.Machine)
		require.Nil(t, binary.Section(".interp"), "it is static")
	}
}

func checkConfig(t *testing.T, image v1.Image, platform v1.Platform, commit string) {
	t.Helper()
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, platform.String(), config.Platform().String())
	require.Equal(t, []string{"/usr/bin/liqo-broker-vk"}, config.Config.Entrypoint)
	require.Empty(t, config.Config.Cmd)
	require.Equal(t, "65532:65532", config.Config.User)
	said := config.Config.Labels
	require.Equal(t, commit, said["org.opencontainers.image.revision"])
	require.Equal(t, "v0.0.0-20260102030405-"+commit[:12], said["org.opencontainers.image.version"])
	require.Equal(t, "2026-01-02T03:04:05Z", said["org.opencontainers.image.created"])
	for _, label := range []string{"title", "source", "licenses", "description"} {
		require.NotEmpty(t, said["org.opencontainers.image."+label], label)
	}
	manifest, err := image.Manifest()
	require.NoError(t, err)
	require.Equal(t, said, manifest.Annotations)
}

// found is a file of an image.
type found struct {
	tar.Header
	content []byte
}

func files(t *testing.T, image v1.Image) map[string]found {
	t.Helper()
	out := map[string]found{}
	for reader := tar.NewReader(mutate.Extract(image)); ; {
		header, err := reader.Next()
		if err == io.EOF { //nolint:errorlint // It is never wrapped.
			return out
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		out[strings.TrimSuffix(header.Name, "/")] = found{*header, content}
	}
}

func TestTheFileSystemIsSmallAndNotTheUsers(t *testing.T) {
	c := newClone(t)
	archive, _ := c.image("-platforms=linux/amd64")
	index, _ := unpack(t, archive)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)

	got := map[string]string{}
	for name, f := range files(t, image) {
		got[name] = fmt.Sprintf("%s %d:%d", f.FileInfo().Mode(), f.Uid, f.Gid)
		if f.Linkname != "" {
			got[name] += " to " + f.Linkname
		}
		require.Equal(t, "2026-01-02T03:04:05Z", f.ModTime.UTC().Format("2006-01-02T15:04:05Z07:00"), name)
	}
	require.Equal(t, map[string]string{
		"etc":                       "drwxr-xr-x 0:0",
		"etc/group":                 "-rw-r--r-- 0:0",
		"etc/passwd":                "-rw-r--r-- 0:0",
		"licenses":                  "drwxr-xr-x 0:0",
		"licenses/LICENSE":          "-rw-r--r-- 0:0",
		"tmp":                       "dtrwxrwxrwx 0:0",
		"usr":                       "drwxr-xr-x 0:0",
		"usr/bin":                   "drwxr-xr-x 0:0",
		"usr/bin/kubectl-broker":    "Lrwxrwxrwx 0:0 to liqo-broker-vk",
		"usr/bin/liqo-broker-vk":    "-rwxr-xr-x 0:0",
		"usr/bin/liqo-broker-vk-v0": "-rwxr-xr-x 0:0",
		"usr/bin/virtual-kubelet":   "Lrwxrwxrwx 0:0 to liqo-broker-vk",
	}, got)
	require.Equal(t, "Do what you like.\n", string(files(t, image)["licenses/LICENSE"].content))
}

func TestTheSameCommitIsTheSameArchive(t *testing.T) {
	c := newClone(t)
	archive, said := c.image("-platforms=linux/amd64")
	other := c.again()
	c.write("main.go", "package changed\n") // The other clone does not have this change.

	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("GOFLAGS", "-tags=noise")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("CGO_ENABLED", "1")
	defer syscall.Umask(syscall.Umask(0o077))
	archiveAgain, saidAgain := other.image("-platforms=linux/amd64")
	require.Equal(t, said, saidAgain)
	require.Equal(t, sum(t, archive), sum(t, archiveAgain))

	other.commit("Nothing but a commit")
	_, saidLater := other.image("-platforms=linux/amd64")
	require.NotEqual(t, said, saidLater, "another commit")
}

func sum(t *testing.T, file string) [sha256.Size]byte {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return sha256.Sum256(content)
}

func TestAFailedBuildLeavesNoArchive(t *testing.T) {
	c := newClone(t)
	c.write("cmd/liqo-broker-vk/main.go", "package main\n\nfunc main() { nothing() }\n")
	err := run(t.Context(), []string{"-source=" + c.dir, "-platforms=linux/amd64"}, io.Discard)
	require.ErrorContains(t, err, "linux/amd64: go build")
	require.ErrorContains(t, err, "undefined: nothing")
	require.NoDirExists(t, c.dir+"/dist")
}

func TestRefusals(t *testing.T) {
	c := newClone(t)
	for name, tc := range map[string]struct {
		args    []string
		message string
	}{
		"pushing to nowhere":      {[]string{"-push"}, "pushing needs an image name"},
		"pushing without a host":  {[]string{"-push", "-image=vk:v1"}, `with a registry (IMAGE=, -image), not "vk:v1"`},
		"a name that is none":     {[]string{"-image=A/B:c"}, "the name of the image"},
		"a digest for a name":     {[]string{"-image=a@sha256:" + strings.Repeat("0", 64)}, "the name of the image"},
		"no platform":             {[]string{"-platforms="}, `-platforms: "" is not`},
		"half a platform":         {[]string{"-platforms=linux"}, `-platforms: "linux" is not`},
		"a variant of a platform": {[]string{"-platforms=linux/arm/v7"}, `-platforms: "linux/arm/v7" is not`},
		"an argument":             {[]string{"now"}, `unknown argument "now"`},
		"a version with a space":  {[]string{"-version=v1 -X main.commit=x"}, "must not contain spaces or quotes"},
		"no clone":                {[]string{"-source=" + t.TempDir()}, "git rev-parse"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), append([]string{"-source=" + c.dir}, tc.args...), io.Discard)
			require.ErrorContains(t, err, tc.message)
		})
	}
	require.NoDirExists(t, c.dir+"/dist")
}
