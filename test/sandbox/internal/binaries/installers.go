package binaries

import (
	"context"
	"os"
	"path/filepath"
)

// Names of the binaries in the directory that EnsureInstallers returns: the programs that readers of the documents have.
const (
	Liqoctl = "liqoctl"
	Helm3   = "helm3"
	Helm4   = "helm4"
)

// Versions of Helm.
const (
	Helm3Version = "v3.22.0"
	Helm4Version = "v4.3.1"
)

// EnsureInstallers builds the programs with which readers install Liqo and the broker, unless they are in the cache, and
// returns the directory that contains them.
func EnsureInstallers(ctx context.Context, progress func(format string, args ...any)) (string, error) {
	sources := []string{"sandbox/internal/binaries/installers.go"}
	return ensureKind(ctx, "installers", []any{LiqoVersion, Helm3Version, Helm4Version}, sources, []target{
		{"liqoctl " + LiqoVersion, []string{Liqoctl}, func(ctx context.Context, dir string) error {
			src, err := LiqoSource(ctx, LiqoVersion)
			if err != nil {
				return err
			}
			return buildShared(ctx, src, dir, "./cmd/liqoctl")
		}},
		helmTarget("helm.sh/helm/v3", Helm3Version, Helm3),
		helmTarget("helm.sh/helm/v4", Helm4Version, Helm4),
	}, progress)
}

func helmTarget(module, version, name string) target {
	return target{"Helm " + version, []string{name}, func(ctx context.Context, dir string) error {
		src, err := sourceOf(ctx, module+"@"+version)
		if err != nil {
			return err
		}
		if err := buildShared(ctx, src, dir, "./cmd/helm"); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "helm"), filepath.Join(dir, name))
	}}
}
