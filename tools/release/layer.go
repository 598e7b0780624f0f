package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// The container's user has the number and the name that it has in distroless images. Its home is the directory that it
// can write to.
const (
	users  = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"
	groups = "root:x:0:\nnonroot:x:65532:\n"
)

// entry is a file, a directory (its name ends in /) or a link, owned by root.
type entry struct {
	name string
	mode int64
	link string
	// The content is the content of a file on this machine, or text.
	file, text string
}

// fileSystem returns all entries of the image. binaries are the program files by name. The container's user can only
// write to /tmp.
func fileSystem(binaries map[string]string, license string) []entry {
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, text: groups},
		{name: "etc/passwd", mode: 0o644, text: users},
		{name: "licenses/", mode: 0o755},
		{name: "licenses/LICENSE", mode: 0o644, file: license},
		// For the serving certificate, and the tokens of EKS identities.
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/kubectl-broker", mode: 0o777, link: "liqo-broker-vk"},
		{name: "usr/bin/liqo-broker-vk", mode: 0o755, file: binaries["liqo-broker-vk"]},
		{name: "usr/bin/liqo-broker-vk-v0", mode: 0o755, file: binaries["liqo-broker-vk-v0"]},
		// liqo-controller-manager runs this path.
		{name: "usr/bin/virtual-kubelet", mode: 0o777, link: "liqo-broker-vk"},
	}
}

// writeLayer writes a compressed layer that depends only on the entries and the time.
func writeLayer(path string, entries []entry, modified time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return writeCompressed(out, entries, modified)
}

// writeCompressed writes a compressed tar file that depends only on the entries and the time.
func writeCompressed(out io.Writer, entries []entry, modified time.Time) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, e := range entries {
		if err := e.write(archive, modified); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func (e entry) write(archive *tar.Writer, modified time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: e.name, Linkname: e.link, Mode: e.mode, ModTime: modified, Format: tar.FormatUSTAR,
	}
	switch {
	case e.link != "":
		header.Typeflag = tar.TypeSymlink
		return archive.WriteHeader(header)
	case strings.HasSuffix(e.name, "/"):
		header.Typeflag = tar.TypeDir
		return archive.WriteHeader(header)
	case e.file != "":
		return addFile(archive, header, e.file)
	}
	header.Size = int64(len(e.text))
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(archive, e.text)
	return err
}

// addFile gives an entry the content of a file.
func addFile(archive *tar.Writer, header *tar.Header, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
