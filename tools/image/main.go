// Command image builds the container image of liqo-broker-vk as an OCI archive, for several platforms, without a
// container engine and without a base image, and can push it. The same commit gives the same digest, wherever and
// whenever it is built with the same version of Go. See docs/image.md.
package main

import (
	"context"
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
	platforms                      []v1.Platform
	push                           bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
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
		output = filepath.Join(o.source, "dist", "liqo-broker-vk-"+r.version+".oci.tar")
	}
	if err := writeArchive(output, scratch, index, tag, r); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s\n%s@%s\n", output, fullName(tag), digest); err != nil || !o.push {
		return err
	}
	return push(ctx, tag, index)
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
		"Push the image to the registry that -image names, with the credentials of docker login")
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
	for name := range strings.SplitSeq(platforms, ",") {
		system, architecture, _ := strings.Cut(name, "/")
		if system == "" || architecture == "" || strings.Contains(architecture, "/") {
			return o, fmt.Errorf("-platforms: %q is not OS/ARCHITECTURE", name)
		}
		o.platforms = append(o.platforms, v1.Platform{OS: system, Architecture: architecture})
	}
	return o, nil
}
