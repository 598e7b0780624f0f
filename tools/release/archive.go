package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// tagOf returns the name of the image. A name without a tag gets the version.
func tagOf(image, version string) (name.Tag, error) {
	if image == "" {
		image = "liqo-broker-vk"
	}
	tag, err := name.NewTag(image, name.WithDefaultTag(version))
	if err != nil {
		return tag, fmt.Errorf("the name of the image (IMAGE=, -image): %w", err)
	}
	return tag, nil
}

// references returns the annotations with which engines find the name when they load the archive: containerd reads the
// whole name, others the tag. They are not part of the hashed content: the digest of the image does not depend on its
// name.
func references(tag name.Tag) map[string]string {
	return map[string]string{
		"io.containerd.image.name":          fullName(tag),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}
}

// fullName returns the name with the registry. The default registry is Docker Hub, which engines call by another name
// than its API.
func fullName(tag name.Tag) string {
	return strings.Replace(tag.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
}

// repositoryOf returns the full name without the tag.
func repositoryOf(tag name.Tag) string { return strings.TrimSuffix(fullName(tag), ":"+tag.TagStr()) }

// writeArchive writes the index, and all objects that it names, as an OCI image layout in a tar file.
func writeArchive(output, scratch string, index v1.ImageIndex, tag name.Tag, r release) error {
	dir := filepath.Join(scratch, "layout")
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("image layout: %w", err)
	}
	if err := written.AppendIndex(index, layout.WithAnnotations(references(tag))); err != nil {
		return fmt.Errorf("image layout: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil { //nolint:gosec // Others may read it.
		return err
	}
	// It is written to another file first and renamed, so the output file is always complete.
	partial := output + ".partial"
	if err := tarDirectory(partial, dir, r.time); err != nil {
		return fmt.Errorf("archive %s: %w", output, errors.Join(err, os.Remove(partial)))
	}
	return os.Rename(partial, output)
}

// tarDirectory writes the files of a directory in the order of their names.
func tarDirectory(path, dir string, modified time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	archive := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(file string, found fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		e := entry{name: filepath.ToSlash(relative), mode: 0o644, file: file}
		if found.IsDir() {
			e = entry{name: e.name + "/", mode: 0o755}
		}
		return e.write(archive, modified)
	})
	return errors.Join(err, archive.Close())
}
