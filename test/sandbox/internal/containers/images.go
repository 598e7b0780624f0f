package containers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Images that every node has.
const (
	// PauseImage holds the namespaces of a pod.
	PauseImage = "sandbox.local/pause:dev"
	// BusyboxImage has a shell, and the usual programs.
	BusyboxImage = "sandbox.local/busybox:dev"
	// RegistryName is the registry that can be pulled from, in the names of images.
	RegistryName = "registry.sandbox"
)

// busybox is where Debian's package busybox-static has its program.
const busybox = "/bin/busybox"

// Program is an image with a program.
type Program struct {
	Binary string
	// Paths are the names of the program in the image, if it has one.
	Paths []string
	// Shell adds the files of BusyboxImage.
	Shell bool
	// Files are further files in the root directory, by their names: paths of this machine.
	Files map[string]string
	// Entrypoint is the first of Paths by default. Arguments are its default arguments.
	Entrypoint, Arguments []string
	// User is UID:GID; "" is root.
	User string
}

// WriteImages writes an archive of the images of programs, by their names, of BusyboxImage and of PauseImage.
func WriteImages(archive string, programs map[string]Program) error {
	shell, err := Busybox(BusyboxImage)
	if err != nil {
		return err
	}
	pause, err := mutate.Config(shell, v1.Config{Entrypoint: []string{"/bin/busybox", "sleep", "2147483647"}})
	if err != nil {
		return err
	}
	byTag := map[string]v1.Image{PauseImage: pause, BusyboxImage: shell}
	for tag, program := range programs {
		if byTag[tag], err = program.image(); err != nil {
			return err
		}
	}
	images := map[name.Tag]v1.Image{}
	for tag, image := range byTag {
		ref, err := name.NewTag(tag)
		if err != nil {
			return err
		}
		images[ref] = image
	}
	return tarball.MultiWriteToFile(archive, images)
}

func (p Program) image() (v1.Image, error) {
	files := []file{{name: "tmp/", mode: 0o1777}}
	if p.Shell {
		shell, err := shellFiles()
		if err != nil {
			return nil, err
		}
		files = shell
	}
	config := v1.Config{Entrypoint: p.Entrypoint, Cmd: p.Arguments, User: p.User}
	for i, name := range p.Paths {
		if i > 0 {
			files = append(files, file{name: name, link: path.Base(p.Paths[0])})
			continue
		}
		if dir := path.Dir(name); dir != "." {
			files = append(files, file{name: path.Dir(dir) + "/", mode: 0o755}, file{name: dir + "/", mode: 0o755})
		}
		files = append(files, file{name: name, mode: 0o755, from: p.Binary})
		if len(p.Entrypoint) == 0 {
			config.Entrypoint = []string{"/" + name}
		}
	}
	for name, from := range p.Files {
		files = append(files, file{name: name, mode: 0o644, from: from})
	}
	return imageOf(config, files...)
}

// file is a file of an image: the content of a file here, or a link.
type file struct {
	name string
	mode int64
	from string
	link string
}

func imageOf(config v1.Config, files ...file) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		if f.link != "" {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.link, Mode: 0o777}); err != nil {
				return nil, err
			}
			continue
		}
		if strings.HasSuffix(f.name, "/") {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.name, Mode: f.mode}); err != nil {
				return nil, err
			}
			continue
		}
		data, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.NoCompression),
	)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	described, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	described = described.DeepCopy()
	described.OS, described.Architecture, described.Config = "linux", runtime.GOARCH, config
	described.Config.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return mutate.ConfigFile(image, described)
}

// shellFiles returns the files of BusyboxImage.
func shellFiles() ([]file, error) {
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	files := []file{{name: "bin/", mode: 0o755}, {name: "bin/busybox", mode: 0o755, from: busybox}, {name: "tmp/", mode: 0o1777}}
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			files = append(files, file{name: "bin/" + applet, link: "busybox"})
		}
	}
	return files, nil
}

// Busybox returns an image with the files of BusyboxImage, and a label with its name.
func Busybox(ref string) (v1.Image, error) {
	files, err := shellFiles()
	if err != nil {
		return nil, err
	}
	return imageOf(v1.Config{Cmd: []string{"sh"}, Labels: map[string]string{"org.opencontainers.image.ref.name": ref}}, files...)
}
