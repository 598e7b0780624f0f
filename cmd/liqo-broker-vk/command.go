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
		Short: "Virtual kubelet for Liqo",
		Long: "liqo-broker-vk, with Liqo's arguments, is a drop-in for the virtual kubelet of Liqo v1.2.0.\n" +
			"It forwards the pods of one virtual node to one remote cluster.",
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
	cmd.AddCommand(newBrokerCommand(logs, built), newCatalogCommand(logs, built), newUsageCommand(), build.NewVersionCommand(built))
	cmd.AddCommand(plugin.New(built).Commands()...)
	return cmd
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
