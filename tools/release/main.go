// Command release builds the container image of liqo-broker-vk as an OCI archive, for several platforms, without a
// container engine and without a base image, and can push it. The same commit gives the same digest, wherever and
// whenever it is built with the same version of Go. See docs/image.md.
//
// With -artifacts it makes a whole release: the image, the chart, the files for kubectl apply, the program for people, lists
// of the modules in them, and checksums. See docs/releases.md.
package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options is the command line.
type options struct {
	source, output, version, image string
	artifacts, key                 string
	platforms                      []v1.Platform
	push                           bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	// 1. The release and the image's name.
	var key *ecdsa.PrivateKey
	if o.artifacts != "" {
		if err := checkTag(ctx, o.source, o.version); err != nil {
			return err
		}
		if err := prepare(o.artifacts); err != nil {
			return err
		}
	}
	if o.key != "" {
		if key, err = readKey(o.key); err != nil {
			return err
		}
	}
	r, err := readRelease(ctx, o.source, o.version)
	if err != nil {
		return err
	}
	tag, err := tagOf(o.image, r.version)
	if err != nil {
		return err
	}
	// 2. A binary and an image for each platform.
	scratch, err := os.MkdirTemp("", "liqo-broker-vk-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	images := make([]platformImage, 0, len(o.platforms))
	for _, platform := range o.platforms {
		image, err := buildPlatform(ctx, o.source, scratch, r, platform)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		images = append(images, image)
	}
	index, err := indexOf(r, images)
	if err != nil {
		return err
	}
	// 3. The archive, and the registry.
	output := o.output
	if output == "" {
		output = filepath.Join(cmp.Or(o.artifacts, filepath.Join(o.source, "dist")), "liqo-broker-vk-"+r.version+".oci.tar")
	}
	if err := writeArchive(output, scratch, index, tag, r); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	named := fullName(tag) + "@" + digest.String()
	if _, err := fmt.Fprintf(stdout, "%s\n%s\n", output, named); err != nil {
		return err
	}
	if o.push {
		if err := push(ctx, tag, index); err != nil {
			return err
		}
	}
	if o.artifacts == "" {
		return nil
	}
	// 4. The other artifacts.
	a := artifacts{source: o.source, directory: o.artifacts, release: r, image: named}
	return a.make(ctx, scratch, tag, key, o, stdout)
}

// make writes and signs the artifacts, and pushes the chart.
func (a artifacts) make(
	ctx context.Context, scratch string, tag name.Tag, key *ecdsa.PrivateKey, o options, stdout io.Writer,
) error {
	binaries := map[string]string{}
	for _, p := range programs() {
		binaries[p.name] = binaryOf(scratch, o.platforms[0], p.name)
	}
	if err := a.writeBill("liqo-broker-vk_"+a.release.version+"_image", binaries); err != nil {
		return err
	}
	chart, err := a.write(ctx, scratch)
	if err != nil {
		return err
	}
	if key != nil {
		if err := a.sign(key); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(stdout, a.directory); err != nil || !o.push {
		return err
	}
	pushed, err := chart.push(ctx, tag)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "oci://%s --version %s\n", pushed, chart.version)
	return err
}

// prepare makes an empty directory.
func prepare(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // Others may read it.
		return err
	}
	files, err := os.ReadDir(directory)
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("the directory of the artifacts (-artifacts) has files: remove %s", directory)
	}
	return err
}

func parse(args []string) (options, error) {
	var o options
	var platforms string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.source, "source", ".", "The clone of the repository to build")
	flags.StringVar(&o.output, "output", "",
		"The archive to write; by default dist/liqo-broker-vk-VERSION.oci.tar in the source")
	flags.StringVar(&o.version, "version", "",
		"The version; by default the tag of the commit, or one made of its time and hash")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64",
		"The platforms to build for, as OS/ARCHITECTURE, separated by commas")
	flags.StringVar(&o.image, "image", "",
		"NAME[:TAG] of the image; by default liqo-broker-vk, and the version as the tag")
	flags.BoolVar(&o.push, "push", false,
		"Push the image, and the chart of a release, to the registry that -image names, with the credentials of docker login")
	flags.StringVar(&o.artifacts, "artifacts", "",
		"Make a release of the tag -version, and write its files into this empty directory")
	flags.StringVar(&o.key, "key", "", "A file with the ECDSA key that signs the checksums of the artifacts")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	// Without a slash, it would be the name of one of Docker's own images.
	if o.push && !strings.Contains(o.image, "/") {
		return o, fmt.Errorf("pushing needs an image name with a registry (IMAGE=, -image), not %q", o.image)
	}
	if o.key != "" && o.artifacts == "" {
		return o, errors.New("a key (KEY=, -key) signs the checksums of -artifacts, which is not given")
	}
	for platform := range strings.SplitSeq(platforms, ",") {
		system, architecture, _ := strings.Cut(platform, "/")
		if system == "" || architecture == "" || strings.Contains(architecture, "/") {
			return o, fmt.Errorf("-platforms: %q is not OS/ARCHITECTURE", platform)
		}
		o.platforms = append(o.platforms, v1.Platform{OS: system, Architecture: architecture})
	}
	return o, nil
}
