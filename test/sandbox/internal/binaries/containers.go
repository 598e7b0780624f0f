package binaries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Names of the binaries in the directory that EnsureContainers returns, in addition to KubeProxy and Web.
const (
	Kubelet = "kubelet"
	Node    = "node"
	CoreDNS = "coredns"
)

// CoreDNSVersion is the version of CoreDNS, which has the Kubernetes libraries of this module.
const CoreDNSVersion = "v1.14.4"

// corednsFile lists the plugins of CoreDNS. Those that a sandbox does not use bring the libraries of three clouds.
const corednsFile = "core/plugin/zplugin.go"

func buildCoreDNS(ctx context.Context, dir string) error {
	copied, err := copySource(ctx, "github.com/coredns/coredns@"+CoreDNSVersion, dir)
	if err != nil {
		return err
	}
	plugins := "package plugin\n"
	for _, name := range []string{"cache", "errors", "health", "kubernetes", "ready"} {
		plugins += fmt.Sprintf("import _ %q\n", "github.com/coredns/coredns/plugin/"+name)
	}
	if err := os.WriteFile(filepath.Join(copied, corednsFile), []byte(plugins), 0o644); err != nil {
		return err
	}
	return buildShared(ctx, copied, dir, ".")
}

// EnsureContainers builds the programs for sandboxes with containers that are not in the cache, and returns the directory
// that contains them. The kubelet is no part of Kube: a sandbox without containers does not need it, and it takes minutes
// to build.
func EnsureContainers(ctx context.Context, progress func(format string, args ...any)) (string, error) {
	return ensureKind(ctx, "containers", []any{KubernetesVersion, CoreDNSVersion}, []string{
		"sandbox/cmd/kubelet/*.go", "sandbox/cmd/node/*.go", "sandbox/cmd/kubeproxy/*.go", "sandbox/cmd/web/*.go",
		"sandbox/internal/binaries/containers.go",
	}, []target{
		proxyTarget(),
		{"kubelet " + KubernetesVersion, []string{Kubelet, Node}, func(ctx context.Context, dir string) error {
			return goCommand(ctx, moduleRoot(), nil, "build",
				"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion="+KubernetesVersion,
				"-o", dir+"/", "./sandbox/cmd/kubelet", "./sandbox/cmd/node")
		}},
		{"CoreDNS " + CoreDNSVersion, []string{CoreDNS}, buildCoreDNS},
	}, progress)
}
