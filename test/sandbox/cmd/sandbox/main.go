// Command sandbox runs a federation of real Kubernetes clusters with real Liqo
// on this machine.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:   "sandbox",
		Short: "Run a federation of real Kubernetes clusters with real Liqo on this machine",
		Long: `Run a federation of real Kubernetes clusters with real Liqo on this machine: consumers
are peered with a broker, and the broker with providers. Everything runs as processes
on loopback, without containers.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	name := root.PersistentFlags().String("name", "default", "name of the sandbox; several can run at the same time")
	root.AddCommand(upCommand(name), downCommand(name), statusCommand(name), kubeconfigCommand(name), kubectlCommand(name),
		linkCommand(name))
	root.AddCommand(faultCommands(name)...)
	return root.ExecuteContext(ctx)
}
