// Command virtual-kubelet-v0 is a virtual kubelet for Liqo v0.x: a drop-in for the virtual kubelet of Liqo v0.9.4. In
// the image, /usr/bin/virtual-kubelet starts it when its arguments have the form of Liqo v0.x.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	// The CAs of public servers, for systems that have none, such as the image: the identities of EKS clusters call
	// AWS.
	_ "golang.org/x/crypto/x509roots/fallback"
	"golang.org/x/sync/errgroup"

	"github.com/liqotech/liqo/pkg/utils"

	"github.com/capacitorset/liqo-broker-vk/kubelet-v0/internal/kubelet"
	"github.com/capacitorset/liqo-broker-vk/pkg/logging"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// version and commit are set by the linker (-X main.version=… -X main.commit=…), see tools/release.
var version, commit = "dev", "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run returns nil when ctx has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand(stderr, args) //nolint:contextcheck // cobra hands the context on.
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}

// newCommand returns the command. It accepts flags among args that it does not know.
func newCommand(logs io.Writer, args []string) *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "virtual-kubelet",
		Short: "Virtual kubelet for Liqo v0.x",
		Long: "virtual-kubelet, with the arguments of Liqo v0.x, is a drop-in for the virtual kubelet of Liqo v0.9.4.\n" +
			"It forwards the pods of one virtual node to one remote cluster.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := process.CheckUnknown(cmd.Flags(), o.strictFlags); err != nil {
				return pointToHelp(cmd, err)
			}
			return runVirtualKubelet(cmd.Context(), o, cmd.Flags(), logs)
		},
	}
	cmd.SetFlagErrorFunc(pointToHelp)
	o.install(cmd.Flags())
	process.AllowUnknown(cmd.Flags(), args)
	return cmd
}

// pointToHelp adds the --help command to an error about flags.
func pointToHelp(_ *cobra.Command, err error) error {
	return fmt.Errorf("%w (see 'virtual-kubelet --help')", err)
}

func runVirtualKubelet(ctx context.Context, o *options, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, err := logging.SetUp(logs, o.logLevel, o.logFormat, flags)
	if err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Log, cfg.UnknownFlags = log, process.Unknown(flags)
	log.Info("Starting", "version", version, "commit", commit, "node", cfg.Node.Name,
		"remoteCluster", cfg.ForeignCluster.ClusterID)
	process.LogUnknown(log, cfg.UnknownFlags)
	if cfg.Home, err = utils.GetRestConfig(o.stock.HomeKubeconfig); err != nil {
		return fmt.Errorf("connecting to the home cluster (set --home-kubeconfig, or run in a pod): %w", err)
	}
	cfg.Home.UserAgent = fmt.Sprintf("liqo-broker-vk/%s (%s/%s) %.12s/virtual-kubelet-v0", version, runtime.GOOS, runtime.GOARCH, commit)

	group, ctx := errgroup.WithContext(ctx)
	if o.stock.EnableProfiling {
		group.Go(func() error { return process.ServeProfiles(ctx, o.profilingAddress) })
	}
	group.Go(func() error { return kubelet.Run(ctx, cfg) })
	if err = group.Wait(); err == nil {
		log.Info("Stopped")
	}
	return err
}
