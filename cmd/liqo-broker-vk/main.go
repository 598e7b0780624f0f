// Command liqo-broker-vk is a virtual kubelet for Liqo: with Liqo's arguments it is a drop-in for Liqo's own, started
// by liqo-controller-manager as /usr/bin/virtual-kubelet.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/kubelet"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"

	// The CAs of public servers, for systems that have none, such as the image: the identities of EKS clusters call
	// AWS.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// version and commit are set by the linker (-X main.version=… -X main.commit=…), see tools/release.
var version, commit = build.Unreleased, ""

// gcPercent is below Go's default. The live heap of each role is steady, and the runtime returns the memory of a burst
// of pods to the system only after minutes. The environment variable GOGC overrides it.
const gcPercent = 60

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(exitCode(runAs(ctx, os.Args[0], os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// runAs runs the program with a name. It returns nil when the command is done or ctx has ended.
func runAs(ctx context.Context, program string, args []string, stdout, stderr io.Writer) error {
	if flag := kubelet.LegacyFlag(args); flag != "" {
		return kubelet.ExecLegacy(flag, args)
	}
	cmd, args := commandOf(program, args, stderr) //nolint:contextcheck // cobra hands the context on.
	return execute(ctx, cmd, args, stdout, stderr)
}

func execute(ctx context.Context, cmd *cobra.Command, args []string, stdout, stderr io.Writer) error {
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	ran, err := cmd.ExecuteContextC(ctx)
	if err != nil {
		return plugin.ErrorOf(ran, err)
	}
	return nil
}

// exitCode prints an error in one line, or a plugin command's errors in one line each, and returns the exit code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	for _, line := range failure(err) {
		fmt.Fprintln(stderr, line)
	}
	return 1
}
