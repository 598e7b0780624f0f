// Command liqo-broker-vk is a virtual kubelet for Liqo: with Liqo's arguments it is a drop-in for Liqo's own, started
// by liqo-controller-manager as /usr/bin/virtual-kubelet.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	// The roots that public servers are verified by where the system has none, as in the image: the identities of EKS
	// clusters call AWS.
	_ "golang.org/x/crypto/x509roots/fallback"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(exitCode(runAs(ctx, os.Args[0], os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// runAs is the whole program under a name: it returns nil when it has done what args ask for, or was asked to stop.
func runAs(ctx context.Context, program string, args []string, stdout, stderr io.Writer) error {
	cmd, args := commandOf(program, args, stderr) //nolint:contextcheck // cobra hands the context on.
	return execute(ctx, cmd, args, stdout, stderr)
}

// run is the program under its own name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return execute(ctx, newRootCommand(stderr), args, stdout, stderr) //nolint:contextcheck // cobra hands the context on.
}

func execute(ctx context.Context, cmd *cobra.Command, args []string, stdout, stderr io.Writer) error {
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	ran, err := cmd.ExecuteContextC(ctx)
	if err != nil {
		return asked(ran, err)
	}
	return nil
}

// exitCode says in one line why the program ends, if it fails; to people, in one for each failure.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	for _, line := range failure(err) {
		fmt.Fprintln(stderr, line)
	}
	return 1
}
