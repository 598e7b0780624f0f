package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Names of the binaries of Liqo v0.x in the directory that EnsureV0 returns. The virtual kubelet, the controller
// manager and the CRD replicator have the same names as in v1.
const (
	LiqoAuth = "auth-service"
	// LiqoNet is the network manager, and the route and gateway operators.
	LiqoNet = "liqonet"
)

// IPAMPortVariable is the environment variable with the port of the IPAM of a network manager of Liqo v0.x.
const IPAMPortVariable = "SANDBOX_IPAM_PORT"

// EnsureV0 builds the components of Liqo v0.x that are not in the cache, and the other programs of their clusters. It
// returns the directories of both.
func EnsureV0(ctx context.Context, progress func(format string, args ...any)) (liqo, others string, err error) {
	if liqo, err = ensureIn(ctx, "-liqo-"+LiqoV0Version, []target{{
		"Liqo " + LiqoV0Version,
		[]string{LiqoControllerManager, LiqoCRDReplicator, LiqoAuth, LiqoNet, LiqoVirtualKubelet},
		buildV0,
	}}, progress); err != nil {
		return "", "", err
	}
	withoutV1 := slices.DeleteFunc(targets(), func(t target) bool { return slices.Contains(t.makes, LiqoIPAM) })
	others, err = ensureIn(ctx, "", withoutV1, progress)
	return liqo, others, err
}

// buildV0 builds Liqo from a copy of its module. Two of its programs have fixed ports, but several clusters share one
// loopback. So the CRD replicator serves no metrics: the linker changes controller-runtime's default address. And the
// network manager reads the port of its IPAM from the environment: the copy has one changed line.
func buildV0(ctx context.Context, dir string) error {
	source, err := LiqoSource(ctx, LiqoV0Version)
	if err != nil {
		return err
	}
	own := filepath.Join(dir, "source")
	if err := os.CopyFS(own, os.DirFS(source)); err != nil {
		return err
	}
	if err := portFromEnvironment(filepath.Join(own, "cmd", "liqonet")); err != nil {
		return err
	}
	args := []string{
		"build", "-o", dir + "/", "-ldflags=-s -w -X sigs.k8s.io/controller-runtime/pkg/metrics.DefaultBindAddress=0",
	}
	for _, name := range []string{LiqoControllerManager, LiqoCRDReplicator, LiqoAuth, LiqoNet, LiqoVirtualKubelet} {
		args = append(args, "./cmd/"+name)
	}
	return goCommand(ctx, own, nil, args...)
}

// portFromEnvironment changes the sources of the network manager so that it gets its port from ipamPort.
func portFromEnvironment(dir string) error {
	const constant = "liqoconst.NetworkManagerIpamPort"
	return errors.Join(replaceIn(filepath.Join(dir, "network-manager.go"), constant, "ipamPort("+constant+")", 1),
		os.WriteFile(filepath.Join(dir, "ipam-port.go"), fmt.Appendf(nil, ipamPort, IPAMPortVariable), 0o600))
}

// ipamPort is an additional file for Liqo's package main of liqonet; %q is the name of the variable.
const ipamPort = `package main

import (
	"os"
	"strconv"
)

func ipamPort(usual int) int {
	if port, err := strconv.Atoi(os.Getenv(%q)); err == nil {
		return port
	}
	return usual
}
`
