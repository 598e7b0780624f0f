package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/kubelet"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// newRootCommand returns the command of the virtual kubelet; the other roles are its subcommands. Only the virtual
// kubelet accepts unknown flags among args.
func newRootCommand(logs io.Writer, args []string) *cobra.Command {
	opts, built := kubelet.NewOptions(), build.Of(version, commit)
	cmd := &cobra.Command{
		Use:   "liqo-broker-vk",
		Short: "Virtual kubelet for Liqo, broker, catalog, and the commands of kubectl broker",
		Long: "liqo-broker-vk shows and changes a federation of Liqo clusters, and has its servers. With Liqo's arguments, the flags\n" +
			"below, it is a drop-in for the virtual kubelet of Liqo v1.2.0: it forwards the pods of one virtual node to one remote\n" +
			"cluster. All servers also have klog's flags (--klog.v and so on).",
		Example: `  # Check the installation in the broker's cluster
  liqo-broker-vk check

  # Show the flags of the broker
  liqo-broker-vk broker --help

  # Run the virtual kubelet, as Liqo does
  liqo-broker-vk --foreign-cluster-id=provider1 --nodename=provider1 --tenant-namespace=liqo-tenant-provider1 \
    --foreign-kubeconfig-secret-name=kubeconfig-provider1 --home-cluster-id=broker --node-ip=$POD_IP`,
		Args:          flags.NoArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := process.CheckUnknown(cmd.Flags(), opts.StrictFlags); err != nil {
				return flags.PointToHelp(cmd, err)
			}
			if cmd.Flags().NFlag() == 0 {
				return errors.New("no arguments: the virtual kubelet needs the arguments that Liqo passes " +
					"(see 'liqo-broker-vk --help' for the commands)")
			}
			return kubelet.Run(cmd.Context(), opts, cmd.Flags(), logs, built)
		},
	}
	cmd.SetFlagErrorFunc(flags.PointToHelp)
	opts.Install(cmd.Flags())
	if len(args) > 0 && strings.HasPrefix(args[0], "-") { // No subcommand.
		process.AllowUnknown(cmd.Flags(), args)
	}
	flags.HideKlog(cmd.Flags())
	cmd.AddGroup(&cobra.Group{ID: people, Title: "Commands for people:"}, &cobra.Group{ID: servers, Title: "Servers:"})
	addTo(cmd, servers, newBrokerCommand(logs, built), newCatalogCommand(logs, built))
	addTo(cmd, people, plugin.New(built).Commands(cmd.Name())...)
	addTo(cmd, "", newUsageCommand(), newSimulateCommand(plugin.New(built)), build.NewVersionCommand(built))
	return cmd
}

// people and servers are groups of commands in the help.
const people, servers = "people", "servers"

// addTo adds commands in a group; "" is the last one.
func addTo(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = group
	}
	root.AddCommand(commands...)
}

// commandOf returns the root command for the name of the program. kubectl completes the arguments of a plugin with a
// second program, which is a link to this one.
func commandOf(program string, args []string, logs io.Writer) (*cobra.Command, []string) {
	typed, completes, found := plugin.ByName(strings.TrimSuffix(filepath.Base(program), ".exe"))
	if !found {
		return newRootCommand(logs, args), args
	}
	if completes {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return plugin.New(build.Of(version, commit)).Root(typed), args
}
