package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// buildPlatform builds the image of one platform, in a directory of temporary files that must exist as long as the
// image.
func buildPlatform(
	ctx context.Context, source, scratch string, r release, platform v1.Platform,
) (platformImage, error) {
	prefix := filepath.Join(scratch, platform.OS+"-"+platform.Architecture)
	binaries := map[string]string{}
	for _, p := range programs() {
		binaries[p.name] = binaryOf(scratch, platform, p.name)
		if err := compile(ctx, filepath.Join(source, p.module), p.path, binaries[p.name], r, platform); err != nil {
			return platformImage{}, err
		}
	}
	license := filepath.Join(source, "LICENSE")
	if err := writeLayer(prefix+".tar.gz", fileSystem(binaries, license), r.time); err != nil {
		return platformImage{}, err
	}
	image, err := imageOf(r, platform, prefix+".tar.gz")
	return platformImage{image, platform}, err
}

// binaryOf is the file of a program for a platform.
func binaryOf(scratch string, platform v1.Platform, program string) string {
	return filepath.Join(scratch, platform.OS+"-"+platform.Architecture+"."+program)
}

// program is a file in /usr/bin, built from a package of a module in the source.
type program struct{ name, module, path string }

// programs are two, because one module cannot have two versions of Liqo.
func programs() []program {
	return []program{{"liqo-broker-vk", ".", "./cmd/liqo-broker-vk"}, {"liqo-broker-vk-v0", "kubelet-v0", "."}}
}

// goFlags returns the flags of go build except -o, for a version and a commit.
func goFlags(version, commit string) []string {
	return []string{
		"-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags=-s -w -buildid= -X main.version=" + version + " -X main.commit=" + commit,
	}
}

// compile builds a binary that depends only on the source, the release and the version of Go.
func compile(ctx context.Context, source, path, output string, r release, platform v1.Platform) error {
	args := append(append([]string{"build"}, goFlags(r.version, r.commit)...), "-o", output, path)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // The arguments are those above.
	cmd.Dir = source
	// The environment variables that influence the binary are fixed here.
	cmd.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
