package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"runtime"
)

// Names of the binaries in the directory that EnsureContainers returns, in addition to KubeProxy and Web.
const (
	Kubelet = "kubelet"
	Node    = "node"
)

// EnsureContainers builds the programs for sandboxes with containers that are not in the cache, and returns the directory
// that contains them. The kubelet is no part of Kube: a sandbox without containers does not need it, and it takes minutes
// to build.
func EnsureContainers(ctx context.Context, progress func(format string, args ...any)) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, KubernetesVersion)
	for _, command := range []string{"kubelet", "node", "kubeproxy", "web"} {
		if err := hashSources(h, "sandbox/cmd/"+command+"/*.go"); err != nil {
			return "", err
		}
	}
	return ensure(ctx, filepath.Join(cache, "containers", hex.EncodeToString(h.Sum(nil))[:16]), []target{
		proxyTarget(),
		{"kubelet " + KubernetesVersion, []string{Kubelet, Node}, func(ctx context.Context, dir string) error {
			return goCommand(ctx, moduleRoot(), nil, "build",
				"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion="+KubernetesVersion,
				"-o", dir+"/", "./sandbox/cmd/kubelet", "./sandbox/cmd/node")
		}},
	}, progress)
}
