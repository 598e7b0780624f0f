// Command liqo-broker-vk is a virtual kubelet for Liqo: with Liqo's arguments it is a drop-in for Liqo's own, started
// by liqo-controller-manager as /usr/bin/virtual-kubelet.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// run is the whole program: it returns nil when it has done what args ask for, or was asked to stop.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newRootCommand(stderr) //nolint:contextcheck // cobra hands the context on.
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}

// exitCode says in one line why the program ends, if it fails.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "liqo-broker-vk: "+strings.Join(strings.Fields(err.Error()), " "))
	return 1
}
