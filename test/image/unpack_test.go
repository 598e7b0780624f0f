package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// archive is an unpacked OCI image layout.
type archive struct {
	t   *testing.T
	dir string
}

func openArchive(t *testing.T, file string) archive {
	t.Helper()
	a := archive{t, t.TempDir()}
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	extract(t, in, a.dir, false)
	return a
}

func (a archive) path(d specs.Descriptor) string {
	return filepath.Join(a.dir, specs.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded())
}

// blob reads the blob of a descriptor, and checks its size and digest.
func (a archive) blob(d specs.Descriptor) []byte {
	a.t.Helper()
	content, err := os.ReadFile(a.path(d))
	require.NoError(a.t, err)
	require.Equal(a.t, d.Digest.String(), fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
	require.EqualValues(a.t, d.Size, len(content))
	return content
}

func read[T any](t *testing.T, content []byte) T {
	t.Helper()
	var value T
	require.NoError(t, json.Unmarshal(content, &value))
	return value
}

// only returns the only image of the archive, and the digest of the index that lists it.
func (a archive) only() (manifest specs.Manifest, config specs.Image, digest string) {
	a.t.Helper()
	top, err := os.ReadFile(filepath.Join(a.dir, specs.ImageIndexFile))
	require.NoError(a.t, err)
	indexes := read[specs.Index](a.t, top).Manifests
	require.Len(a.t, indexes, 1)
	images := read[specs.Index](a.t, a.blob(indexes[0])).Manifests
	require.Len(a.t, images, 1)
	manifest = read[specs.Manifest](a.t, a.blob(images[0]))
	config = read[specs.Image](a.t, a.blob(manifest.Config))
	require.Equal(a.t, config.OS+"/"+config.Architecture, images[0].Platform.OS+"/"+images[0].Platform.Architecture)
	return manifest, config, indexes[0].Digest.String()
}

// rootFS unpacks the layers as a container engine does, with the owners in them, so it must run as root.
func (a archive) rootFS(manifest specs.Manifest) string {
	a.t.Helper()
	root := a.t.TempDir()
	for _, layer := range manifest.Layers {
		require.Equal(a.t, specs.MediaTypeImageLayerGzip, layer.MediaType)
		a.blob(layer)
		file, err := os.Open(a.path(layer))
		require.NoError(a.t, err)
		content, err := gzip.NewReader(file)
		require.NoError(a.t, err)
		extract(a.t, content, root, true)
		require.NoError(a.t, file.Close())
	}
	return root
}

// extract unpacks an archive into a directory. If owned is true, it sets owners and modes.
func extract(t *testing.T, in io.Reader, dir string, owned bool) {
	t.Helper()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(header.Name), header.Name)
		path := filepath.Join(dir, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.Mkdir(path, 0o755))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(header.Linkname, path))
			continue // It has no mode, and its owner does not matter.
		default:
			file, err := os.Create(path)
			require.NoError(t, err)
			_, err = io.Copy(file, reader)
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		if owned {
			require.NoError(t, os.Chown(path, header.Uid, header.Gid))
			require.NoError(t, os.Chmod(path, header.FileInfo().Mode()))
		}
	}
}
