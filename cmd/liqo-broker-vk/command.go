package main

import (
	"io"

	"github.com/spf13/cobra"
)

// newRootCommand returns the command that is the virtual kubelet itself; other roles are its subcommands.
func newRootCommand(logs io.Writer) *cobra.Command {
	opts := newOptions()
	cmd := &cobra.Command{
		Use:   "liqo-broker-vk",
		Short: "Virtual kubelet for Liqo",
		Long: "liqo-broker-vk, with Liqo's arguments, is a drop-in for the virtual kubelet of Liqo v1.2.0.\n" +
			"It forwards the pods of one virtual node to one remote cluster.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runVirtualKubelet(cmd.Context(), opts, cmd.Flags(), logs)
		},
	}
	opts.install(cmd.Flags())
	cmd.AddCommand(newBrokerCommand(logs), newCatalogCommand(logs), newVersionCommand())
	cmd.AddCommand(newPeople().commands()...)
	return cmd
}
