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
// manager and the CRD replicator have the names of v1.
const (
	LiqoAuth = "auth-service"
	// LiqoNet is the network manager, and the route and gateway operators.
	LiqoNet = "liqonet"
)

// IPAMPortVariable is the environment variable with the port of the IPAM of a network manager of Liqo v0.x.
const IPAMPortVariable = "SANDBOX_IPAM_PORT"

// EnsureV0 builds what the cache lacks of the components of Liqo v0.x, and of what their clusters run besides. It
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

// buildV0 builds a copy of Liqo's own module. Two of its programs have fixed ports, and several clusters share one
// loopback: the CRD replicator serves no metrics, by the linker's change of controller-runtime's default address, and
// the network manager has the port of its IPAM from the environment, by a change of one line in the copy.
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

// portFromEnvironment has the network manager in a directory of its sources ask ipamPort for its port.
func portFromEnvironment(dir string) error {
	const constant = "liqoconst.NetworkManagerIpamPort"
	return errors.Join(replaceIn(filepath.Join(dir, "network-manager.go"), constant, "ipamPort("+constant+")", 1),
		os.WriteFile(filepath.Join(dir, "ipam-port.go"), fmt.Appendf(nil, ipamPort, IPAMPortVariable), 0o600))
}

// ipamPort is a file of Liqo's package main of liqonet, with the variable's name to be filled in.
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
