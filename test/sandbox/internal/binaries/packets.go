package binaries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Names of the binaries in the directory that EnsurePackets returns.
const (
	LiqoGateway   = "gateway"
	LiqoWireGuard = "wireguard"
	LiqoGeneve    = "geneve"
	LiqoFabric    = "fabric"
	KubeProxy     = "kubeproxy"
	Web           = "web"
)

// Files of Liqo and of this module: the first has Liqo's Geneve links, the second replaces it if the kernel has no
// Geneve.
const (
	liqoGeneveFile = "pkg/utils/network/geneve/netlink.go"
	ownGeneveFile  = "sandbox/internal/geneve/geneve.go"
)

// EnsurePackets builds the programs for sandboxes with packets that are not in the cache, and returns the directory
// that contains them.
func EnsurePackets(ctx context.Context, geneve bool, progress func(format string, args ...any)) (string, error) {
	return ensureKind(ctx, "packets", []any{KubernetesVersion, LiqoVersion, geneve},
		[]string{"sandbox/cmd/kubeproxy/*.go", "sandbox/cmd/web/*.go", ownGeneveFile}, packetTargets(geneve), progress)
}

func packetTargets(geneve bool) []target {
	liqo := func(ctx context.Context, dir string) error {
		src, err := LiqoSource(ctx, LiqoVersion)
		if err != nil {
			return err
		}
		if !geneve {
			if src, err = withoutGeneve(src, filepath.Join(dir, "liqo")); err != nil {
				return err
			}
		}
		return buildShared(ctx, src, dir, "./cmd/gateway", "./cmd/gateway/wireguard", "./cmd/gateway/geneve", "./cmd/fabric")
	}
	return []target{
		{"gateways and fabric of Liqo " + LiqoVersion, []string{LiqoGateway, LiqoWireGuard, LiqoGeneve, LiqoFabric}, liqo},
		proxyTarget(),
	}
}

// proxyTarget builds kube-proxy, and the program of pods that answer HTTP requests.
func proxyTarget() target {
	return target{"kube-proxy " + KubernetesVersion, []string{KubeProxy, Web}, func(ctx context.Context, dir string) error {
		return goCommand(ctx, moduleRoot(), nil, "build",
			"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion="+KubernetesVersion,
			"-o", dir+"/", "./sandbox/cmd/kubeproxy", "./sandbox/cmd/web")
	}}
}

// withoutGeneve copies Liqo's source and replaces Liqo's file with ours. An overlay cannot be used: the Go command
// refuses to replace files of the module cache.
func withoutGeneve(liqo, dir string) (string, error) {
	if err := os.CopyFS(dir, os.DirFS(liqo)); err != nil {
		return "", fmt.Errorf("copy Liqo's source: %w", err)
	}
	own, err := os.ReadFile(filepath.Join(moduleRoot(), ownGeneveFile))
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, liqoGeneveFile), own, 0o644)
}
