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

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options is the command line.
type options struct {
	source, output, version, image string
	artifacts, chart, key          string
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
	if o.artifacts != "" {
		if err := checkRelease(ctx, o, tag); err != nil {
			return err
		}
	}
	// 2. A binary and an image for each platform.
	scratch, err := os.MkdirTemp("", "liqo-broker-vk-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	index, err := buildIndex(ctx, o, r, scratch)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	archive := "liqo-broker-vk-" + r.version + ".oci.tar"
	if o.artifacts == "" {
		// 3. The archive, and the registry.
		output := cmp.Or(o.output, filepath.Join(o.source, "dist", archive))
		if err := writeArchive(output, scratch, index, tag, r); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stdout, "%s\n%s@%s\n", output, fullName(tag), digest); err != nil || !o.push {
			return err
		}
		return push(ctx, tag, index)
	}
	// 4. The whole release: nothing is published before all of it is there.
	a := artifacts{source: o.source, directory: o.artifacts + ".partial", release: r, image: tag, digest: digest}
	if err := os.RemoveAll(a.directory); err != nil {
		return err
	}
	if err := writeArchive(filepath.Join(a.directory, archive), scratch, index, tag, r); err != nil {
		return err
	}
	chart, err := a.write(ctx, scratch, o.platforms, key)
	if err != nil {
		return err
	}
	if err := os.Rename(a.directory, o.artifacts); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s\n%s\n", o.artifacts, a.imageName()); err != nil || !o.push {
		return err
	}
	if err := push(ctx, tag, index); err != nil {
		return err
	}
	return chart.push(ctx, o.chart, tag, stdout)
}

// buildIndex compiles the programs for each platform, and returns the image of all.
func buildIndex(ctx context.Context, o options, r release, scratch string) (v1.ImageIndex, error) {
	images := make([]platformImage, 0, len(o.platforms))
	for _, platform := range o.platforms {
		image, err := buildPlatform(ctx, o.source, scratch, r, platform)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
		images = append(images, image)
	}
	return indexOf(r, images)
}

func parse(args []string) (options, error) {
	var o options
	var platforms string
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
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
		"Make a release of the tag -version, and write its files into this directory, which must not exist")
	flags.StringVar(&o.chart, "chart", "",
		"The chart's name in a registry; by default charts/liqo-broker-vk beside -image")
	flags.StringVar(&o.key, "key", "", "A file with the ECDSA key that signs the checksums of the artifacts")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	// Without a slash, it would be the name of one of Docker's own images.
	if named := strings.Contains(o.image, "/"); !named && o.push {
		return o, fmt.Errorf("pushing needs an image name with a registry (IMAGE=, -image), not %q", o.image)
	} else if !named && o.artifacts != "" {
		return o, fmt.Errorf("a release needs an image name with a registry (IMAGE=, -image), not %q", o.image)
	}
	if o.artifacts == "" && o.key+o.chart != "" {
		return o, errors.New("a key (KEY=, -key) and the chart's name (CHART=, -chart) are of -artifacts, which is not given")
	}
	if o.artifacts != "" && o.output != "" {
		return o, errors.New("-output: the archive of a release is one of its -artifacts")
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
