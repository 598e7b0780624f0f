package binaries

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// sharedPrefixes are the prefixes of the modules that programs of other modules use at this module's versions, if these
// are later. They are most of the code of a sandbox's programs, which is then compiled only once. The code of the
// programs themselves comes from their own modules.
var sharedPrefixes = []string{
	"k8s.io/", "sigs.k8s.io/", "golang.org/x/", "google.golang.org/", "go.opentelemetry.io/", "go.etcd.io/", "cel.dev/",
	"github.com/google/", "github.com/prometheus/", "github.com/moby/", "github.com/spf13/", "github.com/go-logr/", "github.com/modern-go/",
	"github.com/fxamacker/", "github.com/grpc-ecosystem/", "github.com/Masterminds/", "gopkg.in/",
}

// buildShared builds packages of another module in dir, with the versions of this module. src is the directory of its
// source.
func buildShared(ctx context.Context, src, dir string, packages ...string) error {
	work, err := os.MkdirTemp(dir, "go.mod-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	modfile := filepath.Join(work, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, name), text, 0o644); err != nil {
			return err
		}
	}
	later, err := laterVersions(ctx, src)
	if err != nil {
		return err
	}
	if err := goCommand(ctx, src, nil, append(append([]string{"mod", "edit"}, later...), modfile)...); err != nil {
		return err
	}
	args := []string{"build", "-mod=mod", "-modfile=" + modfile, "-ldflags=-s -w", "-o", dir + "/"}
	return goCommand(ctx, src, nil, append(args, packages...)...)
}

// One file of KWOK's source uses a constant that Kubernetes' libraries had until 0.33; kwokValue is its value.
const (
	kwokFile    = "pkg/utils/informer/informer.go"
	kwokRenamed = "metav1.InitialEventsListBlueprintAnnotationKey"
	kwokValue   = `"kubernetes.io/initial-events-list-blueprint"`
)

// copySource copies the source of a module to a new directory below dir, which the caller removes, and returns that: the
// Go command refuses to replace files of the module cache.
func copySource(ctx context.Context, module, dir string) (string, error) {
	src, err := sourceOf(ctx, module)
	if err != nil {
		return "", err
	}
	copied, err := os.MkdirTemp(dir, "source-")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(copied, os.DirFS(src)); err != nil {
		return "", fmt.Errorf("copy the source of %s: %w", module, err)
	}
	return copied, nil
}

func buildKwok(ctx context.Context, dir string) error {
	copied, err := copySource(ctx, "sigs.k8s.io/kwok@"+KwokVersion, dir)
	if err != nil {
		return err
	}
	if err := replaceIn(filepath.Join(copied, kwokFile), kwokRenamed, kwokValue, 2); err != nil {
		return err
	}
	return buildShared(ctx, copied, dir, "./cmd/kwok")
}

// laterVersions returns an argument of go mod edit for each module of src that this module has in a later version.
func laterVersions(ctx context.Context, src string) ([]string, error) {
	ours, err := versionsOf(ctx, moduleRoot())
	if err != nil {
		return nil, err
	}
	theirs, err := versionsOf(ctx, src)
	if err != nil {
		return nil, err
	}
	var later []string
	for module, version := range theirs {
		if semver.Compare(ours[module], version) > 0 && isShared(module) {
			later = append(later, "-require="+module+"@"+ours[module])
		}
	}
	return later, nil
}

func isShared(module string) bool {
	return slices.ContainsFunc(sharedPrefixes, func(prefix string) bool { return strings.HasPrefix(module, prefix) })
}

// hashShared adds all inputs that determine the versions in the programs of a sandbox.
func hashShared(h io.Writer) error {
	mod, err := os.ReadFile(filepath.Join(moduleRoot(), "go.mod"))
	if err != nil {
		return fmt.Errorf("the source of the sandbox is no longer in the directory it was built from: %w", err)
	}
	for line := range strings.Lines(string(mod)) {
		if fields := strings.Fields(line); len(fields) > 1 && isShared(fields[0]) {
			fmt.Fprintln(h, fields)
		}
	}
	return hashSources(h, "sandbox/internal/binaries/shared.go")
}

// versionsOf returns the version of each module that is in the build list of a directory's module.
func versionsOf(ctx context.Context, dir string) (map[string]string, error) {
	out, err := goOutput(ctx, dir, "list", "-m", "-f", "{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}", "all")
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[module] = version
		}
	}
	return versions, nil
}
