// Package binaries builds the programs of a sandbox from source, with only the Go toolchain, and keeps them in a cache
// keyed by versions.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Versions of the programs. LiqoVersion and KubernetesVersion are also in go.mod, and a test keeps them equal.
const (
	KubernetesVersion = "v1.35.4"
	LiqoVersion       = "v1.2.0"
	KwokVersion       = "v0.7.0"
	// LiqoV0Version is the version in kubelet-v0/go.mod.
	LiqoV0Version = "v0.9.4"
	// LiqoV11Version is an earlier version with the same API that a sandbox can run instead.
	LiqoV11Version = "v1.1.2"
)

// LaterKubernetes are the versions that a sandbox can run instead of KubernetesVersion. sandbox/kubernetes has a go.mod
// for each.
var LaterKubernetes = []string{"v1.36.3", "v1.37.2"}

// Names of the binaries in the directory that Ensure returns.
const (
	Kube                  = "kube"
	Kubectl               = "kubectl"
	Kwok                  = "kwok"
	Contain               = "contain"
	LiqoControllerManager = "liqo-controller-manager"
	LiqoCRDReplicator     = "crd-replicator"
	LiqoWebhook           = "webhook"
	LiqoIPAM              = "ipam"
	LiqoVirtualKubelet    = "virtual-kubelet"
)

// product is the name of this repository's program.
const product = "liqo-broker-vk"

// moduleRoot returns the directory of the test module, determined when this package was compiled.
func moduleRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Clean(filepath.Join(filepath.Dir(file), "../../.."))
}

// ProductRoot is the root of the repository.
func ProductRoot() string { return filepath.Dir(moduleRoot()) }

// target is one invocation of the Go command that builds one or more binaries.
type target struct {
	name  string
	makes []string
	// build runs the Go command so that the binaries are written to dir.
	build func(ctx context.Context, dir string) error
}

func targets() []target {
	return []target{
		{"contain", []string{Contain}, func(ctx context.Context, dir string) error {
			return goCommand(ctx, moduleRoot(), nil, "build", "-o", dir+"/", "./sandbox/cmd/contain")
		}},
		liqoTarget(LiqoVersion),
		{"KWOK " + KwokVersion, []string{Kwok}, buildKwok},
		kubernetesTarget(KubernetesVersion),
	}
}

func kubernetesTarget(version string) target {
	return target{"Kubernetes " + version, []string{Kube, Kubectl}, func(ctx context.Context, dir string) error {
		v := "-X k8s.io/component-base/version."
		parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
		args := []string{
			"build", "-ldflags=-s -w " + v + "gitVersion=" + version + " " + v + "gitMajor=" + parts[0] + " " + v + "gitMinor=" + parts[1],
			"-o", dir + "/",
		}
		if version != KubernetesVersion {
			args = append(args, "-modfile=sandbox/kubernetes/"+version+".mod")
		}
		return goCommand(ctx, moduleRoot(), nil, append(args, "./sandbox/cmd/kube", "./sandbox/cmd/kubectl")...)
	}}
}

// liqoTarget builds inside Liqo's own module: except for Kubernetes' libraries, dependencies such as virtual-kubelet
// have the versions that Liqo chose.
func liqoTarget(version string) target {
	names := []string{LiqoControllerManager, LiqoCRDReplicator, LiqoWebhook, LiqoIPAM, LiqoVirtualKubelet}
	return target{"Liqo " + version, names, func(ctx context.Context, dir string) error {
		src, err := LiqoSource(ctx, version)
		if err != nil {
			return err
		}
		var packages []string
		for _, name := range names {
			packages = append(packages, "./cmd/"+name)
		}
		return buildShared(ctx, src, dir, packages...)
	}}
}

// CacheDir is where sandboxes keep binaries and state: liqo-broker-vk below the
// user's cache directory, or the value of LIQO_BROKER_VK_CACHE.
func CacheDir() (string, error) {
	if dir := os.Getenv("LIQO_BROKER_VK_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the cache of binaries, set LIQO_BROKER_VK_CACHE: %w", err)
	}
	return filepath.Join(dir, product), nil
}

// Ensure builds the binaries that are not in the cache, and returns the directory with all of them. progress gets a
// line for each build.
func Ensure(ctx context.Context, progress func(format string, args ...any)) (string, error) {
	return ensureIn(ctx, "", targets(), progress)
}

// ensureIn ensures targets in a cache directory whose name ends with suffix.
func ensureIn(ctx context.Context, suffix string, targets []target, progress func(format string, args ...any)) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	key, err := cacheKey()
	if err != nil {
		return "", err
	}
	return ensure(ctx, filepath.Join(cache, "bin", key+suffix), targets, progress)
}

// EnsureLiqo does the same for another version of Liqo.
func EnsureLiqo(ctx context.Context, version string, progress func(format string, args ...any)) (string, error) {
	return ensureIn(ctx, "-liqo-"+version, []target{liqoTarget(version)}, progress)
}

// EnsureKubernetes does the same for another version of Kubernetes.
func EnsureKubernetes(ctx context.Context, version string, progress func(format string, args ...any)) (string, error) {
	return ensureIn(ctx, "-kubernetes-"+version, []target{kubernetesTarget(version)}, progress)
}

// ensureKind ensures targets in a directory of the cache for programs of one kind. The versions, the shared modules and the
// sources, relative to this module, determine its name.
func ensureKind(ctx context.Context, kind string, versions []any, sources []string, targets []target,
	progress func(format string, args ...any),
) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, append([]any{runtime.Version(), runtime.GOARCH}, versions...)...)
	if err := hashShared(h); err != nil {
		return "", err
	}
	if err := hashSources(h, sources...); err != nil {
		return "", err
	}
	return ensure(ctx, filepath.Join(cache, kind, hex.EncodeToString(h.Sum(nil))[:16]), targets, progress)
}

// ensure builds the targets that dir lacks, and returns dir.
func ensure(ctx context.Context, dir string, targets []target, progress func(format string, args ...any)) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	return dir, ensureAll(ctx, targets, dir, progress)
}

func ensureAll(ctx context.Context, all []target, dir string, progress func(string, ...any)) error {
	for _, t := range all {
		if err := t.ensure(ctx, dir, progress); err != nil {
			return fmt.Errorf("build %s: %w", t.name, err)
		}
	}
	return nil
}

func (t target) ensure(ctx context.Context, dir string, progress func(string, ...any)) error {
	if t.complete(dir) {
		return nil
	}
	progress("building %s (kept in %s)", t.name, dir)
	// Built in a temporary directory and renamed, so that an interrupted build leaves no seemingly complete binaries.
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := t.build(ctx, tmp); err != nil {
		return err
	}
	for _, name := range t.makes {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (t target) complete(dir string) bool {
	for _, name := range t.makes {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// BuildProduct builds this repository's program, and copies it to dir, so that the sandbox in dir keeps this build. It
// returns the copy's path. All sandboxes of a working tree share one build: the Go command links it again only after a
// change.
func BuildProduct(ctx context.Context, dir string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	tree := sha256.Sum256([]byte(ProductRoot()))
	shared := filepath.Join(cache, "product", hex.EncodeToString(tree[:])[:16])
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, shared+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	built := filepath.Join(shared, product)
	if err := goCommand(ctx, ProductRoot(), nil, "build", "-o", built, "./cmd/"+product); err != nil {
		return "", err
	}
	out := filepath.Join(dir, product)
	return out, copyProgram(built, out)
}

// BuildImage builds the content of the image's /usr/bin in dir, and returns the path of virtual-kubelet, which starts
// the virtual kubelet of Liqo v1 or of v0.x.
func BuildImage(ctx context.Context, dir string) (string, error) {
	built, err := BuildProduct(ctx, dir)
	if err != nil {
		return "", err
	}
	if err := goCommand(ctx, filepath.Join(ProductRoot(), "kubelet-v0"), nil, "build", "-o",
		filepath.Join(dir, product+"-v0"), "."); err != nil {
		return "", err
	}
	link := filepath.Join(dir, LiqoVirtualKubelet)
	return link, os.Symlink(filepath.Base(built), link)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// LiqoSource returns the directory of the source of a version of Liqo, which also holds its Helm chart and CRDs.
func LiqoSource(ctx context.Context, version string) (string, error) {
	return sourceOf(ctx, "github.com/liqotech/liqo@"+version)
}

// sourceOf returns the directory of a module's source in the module cache.
func sourceOf(ctx context.Context, module string) (string, error) {
	out, err := goOutput(ctx, moduleRoot(), "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var info struct{ Dir string }
	if err := json.Unmarshal(out, &info); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", module, err)
	}
	return info.Dir, nil
}

// cacheKey is a hash of all inputs of the binaries.
func cacheKey() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, KubernetesVersion, LiqoVersion, KwokVersion)
	if err := hashShared(h); err != nil {
		return "", err
	}
	if err := hashSources(h, "sandbox/cmd/kube/*.go", "sandbox/cmd/kubectl/*.go", "sandbox/cmd/contain/*.go"); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashSources adds the matching files of this module to the hash.
func hashSources(h io.Writer, patterns ...string) error {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(moduleRoot(), pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("the source of the sandbox is no longer in the directory it was built from (%s)", moduleRoot())
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			fmt.Fprintln(h, filepath.Base(f), len(data))
			if _, err := h.Write(data); err != nil {
				return err
			}
		}
	}
	return nil
}

func goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Without cgo, as for the image and the tests: packages that they share are compiled once.
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return nil
}

// goOutput runs the Go command and returns its output.
func goOutput(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w\n%s%s", strings.Join(args, " "), dir, err, out, errs.Bytes())
	}
	return out, nil
}

// replaceIn replaces a text in a file of a copied source. The text must occur the given number of times.
func replaceIn(file, old, replacement string, times int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if strings.Count(string(text), old) != times {
		return fmt.Errorf("%s does not have %s %d times", file, old, times)
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o644)
}

// lock takes an exclusive lock on a file, waiting for another build to end.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another build holds %s: %w", path, ctx.Err())
		}
	}
}
