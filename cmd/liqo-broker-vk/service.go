package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	flagsutils "github.com/liqotech/liqo/pkg/utils/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/logging"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// service is a role that runs in the broker's cluster.
type service interface {
	install(*pflag.FlagSet)
	validate() error
	common() *flags.Service
	// needsLiqo returns why the service cannot run; missing is the result of requireLiqo.
	needsLiqo(missing error) error
	// run runs the service, built from built, until the context ends.
	run(ctx context.Context, log logr.Logger, home *rest.Config, built build.Info) error
}

// newServiceCommand completes a command: it validates the options, sets up the log and the connection to the broker's
// cluster, and runs the service.
func newServiceCommand(cmd *cobra.Command, s service, logs io.Writer, built build.Info) *cobra.Command {
	flagsutils.InitKlogFlags(cmd.Flags())
	flags.HideKlog(cmd.Flags())
	s.install(cmd.Flags())
	cmd.Args = flags.NoArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.validate(); err != nil {
			return err
		}
		o := s.common()
		log, err := logging.SetUp(logs, o.LogLevel, o.LogFormat, cmd.Flags())
		if err != nil {
			return err
		}
		home, err := built.RESTConfig(o.HomeKubeconfig, cmd.Name())
		if err != nil {
			return fmt.Errorf("connecting to the broker's cluster (set --home-kubeconfig, or run in a pod): %w", err)
		}
		log.Info("Starting", "role", cmd.Name(), "version", built.Version, "commit", built.Commit, "node", o.NodeName)
		if err := s.needsLiqo(requireLiqo(cmd.Context(), home)); err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(cmd.Context())
		if address := flags.Served(o.ProfilingAddress); address != "" {
			group.Go(func() error { return process.ServeProfiles(ctx, address) })
		}
		group.Go(func() error { return s.run(ctx, log, home, built) })
		if err := group.Wait(); err != nil {
			return err
		}
		log.Info("Stopped")
		return nil
	}
	return cmd
}
