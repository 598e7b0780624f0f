package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// newRootCommand returns the command of the virtual kubelet; the other roles are its subcommands. Of the arguments, those of the
// virtual kubelet may have flags that it does not know.
func newRootCommand(logs io.Writer, args []string) *cobra.Command {
	opts := newOptions()
	cmd := &cobra.Command{
		Use:   "liqo-broker-vk",
		Short: "Virtual kubelet for Liqo",
		Long: "liqo-broker-vk, with Liqo's arguments, is a drop-in for the virtual kubelet of Liqo v1.2.0.\n" +
			"It forwards the pods of one virtual node to one remote cluster.",
		Args:          noArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := process.CheckUnknown(cmd.Flags(), opts.strictFlags); err != nil {
				return pointToHelp(cmd, err)
			}
			if cmd.Flags().NFlag() == 0 {
				return errors.New("no arguments: a virtual kubelet needs those that Liqo passes " +
					"(see 'liqo-broker-vk --help' for the commands)")
			}
			return runVirtualKubelet(cmd.Context(), opts, cmd.Flags(), logs)
		},
	}
	cmd.SetFlagErrorFunc(pointToHelp)
	opts.install(cmd.Flags())
	if len(args) > 0 && strings.HasPrefix(args[0], "-") { // Not those of a subcommand.
		process.AllowUnknown(cmd.Flags(), args)
	}
	cmd.AddCommand(newBrokerCommand(logs), newCatalogCommand(logs), newVersionCommand())
	cmd.AddCommand(newPeople().commands()...)
	return cmd
}

// pointToHelp adds the --help command to an error about flags.
func pointToHelp(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w (see '%s --help')", err, cmd.CommandPath())
}

// noArguments returns an error for an argument, with the commands of a similar name.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		hint = ": did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s (see '%s --help')", args[0], cmd.CommandPath(), hint, cmd.CommandPath())
}
