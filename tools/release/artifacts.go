package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/semver"
)

// artifacts are the files of a release.
type artifacts struct {
	source, directory string
	release           release
	image             name.Tag
	digest            v1.Hash
}

// imageName is the image's name with its digest.
func (a artifacts) imageName() string { return fullName(a.image) + "@" + a.digest.String() }

// commandPlatforms are the platforms for which people get the program, as the plugin of kubectl.
var commandPlatforms = []v1.Platform{
	{OS: "darwin", Architecture: "amd64"},
	{OS: "darwin", Architecture: "arm64"},
	{OS: "linux", Architecture: "amd64"},
	{OS: "linux", Architecture: "arm64"},
	{OS: "windows", Architecture: "amd64"},
	{OS: "windows", Architecture: "arm64"},
}

// checkRelease returns an error unless the version is semantic, the commit has it as a tag, nothing is changed, and the
// names and the directory can be used.
func checkRelease(ctx context.Context, o options, image name.Tag) error {
	if !semver.IsValid(o.version) || semver.Canonical(o.version) != o.version {
		return fmt.Errorf("a release needs a semantic version such as v0.1.0 (VERSION=, -version), not %q", o.version)
	}
	if image.TagStr() != o.version {
		return fmt.Errorf("the image's tag (IMAGE=, -image) is %s: leave it out, a release has its version", image.TagStr())
	}
	if o.push && o.chart == "" && image.RegistryStr() == name.DefaultRegistry {
		return fmt.Errorf("%s has no names of three parts: give the chart one (CHART=, -chart)", fullName(image))
	}
	tags, err := git(ctx, o.source, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(tags), o.version) {
		return fmt.Errorf("the commit has no tag %s: git tag --sign %s", o.version, o.version)
	}
	changes, err := git(ctx, o.source, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("a release needs a clean tree:\n%s", changes)
	}
	if _, err := os.Lstat(o.artifacts); err == nil {
		return fmt.Errorf("the directory of the artifacts (-artifacts) is there: remove %s", o.artifacts)
	}
	return nil
}

// write writes the artifacts beside the image's archive, their checksums last, and signs these if there is a key.
func (a artifacts) write(
	ctx context.Context, scratch string, platforms []v1.Platform, key *ecdsa.PrivateKey,
) (chart chartArchive, err error) {
	if err := a.writeManifests(); err != nil {
		return chart, err
	}
	if chart, err = a.writeChart(ctx); err != nil {
		return chart, err
	}
	archives := map[string]string{}
	for _, platform := range commandPlatforms {
		if archives[platform.String()], err = a.writeCommand(ctx, scratch, platform); err != nil {
			return chart, fmt.Errorf("%s: %w", platform, err)
		}
	}
	var binaries []string
	for _, platform := range platforms {
		for _, p := range programs() {
			binaries = append(binaries, binaryOf(scratch, platform, p.name))
		}
	}
	if err := a.writeBill("liqo-broker-vk_"+a.release.version+"_image", "CONTAINER", binaries...); err != nil {
		return chart, err
	}
	if err := a.writeFile("image.txt", []byte(a.imageName()+"\n")); err != nil {
		return chart, err
	}
	if err := a.writePlugin(archives); err != nil {
		return chart, err
	}
	if err := a.writeChecksums(); err != nil || key == nil {
		return chart, err
	}
	return chart, a.sign(key)
}

func (a artifacts) writeFile(name string, content []byte) error {
	return os.WriteFile(filepath.Join(a.directory, name), content, 0o644) //nolint:gosec // Others may read it.
}

// writeCommand writes the program for a platform, with the license, into an archive whose name it returns. It compiles
// the program, unless the image has it already. Beside the archive is a list of the modules in the program.
func (a artifacts) writeCommand(ctx context.Context, scratch string, platform v1.Platform) (string, error) {
	program := "liqo-broker-vk"
	if platform.OS == "windows" {
		program += ".exe"
	}
	binary := binaryOf(scratch, platform, "liqo-broker-vk")
	if _, err := os.Stat(binary); err != nil {
		if err := compile(ctx, a.source, "./cmd/liqo-broker-vk", binary, a.release, platform); err != nil {
			return "", err
		}
	}
	name := strings.Join([]string{"liqo-broker-vk", a.release.version, platform.OS, platform.Architecture}, "_")
	if err := a.writeBill(name, "APPLICATION", binary); err != nil {
		return "", err
	}
	entries := []entry{
		{name: "LICENSE", mode: 0o644, file: filepath.Join(a.source, "LICENSE")},
		{name: program, mode: 0o755, file: binary},
	}
	if platform.OS != "windows" {
		name += ".tar.gz"
		return name, writeLayer(filepath.Join(a.directory, name), entries, a.release.time)
	}
	name += ".zip"
	return name, writeZip(filepath.Join(a.directory, name), entries, a.release)
}

// writeZip writes the files of entries.
func writeZip(path string, entries []entry, r release) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	archive := zip.NewWriter(out)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: r.time}
		header.SetMode(os.FileMode(e.mode))
		to, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		from, err := os.Open(e.file)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		if err := errors.Join(err, from.Close()); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return archive.Close()
}

// checksumsFile has the SHA-256 of all other files, as sha256sum writes and checks them.
const checksumsFile = "SHA256SUMS"

func (a artifacts) writeChecksums() error {
	files, err := os.ReadDir(a.directory)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, file := range files {
		sum, err := checksum(filepath.Join(a.directory, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, file.Name())
	}
	return a.writeFile(checksumsFile, sums.Bytes())
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
