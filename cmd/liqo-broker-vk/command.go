package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version=…).
var version = "dev"

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

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "liqo-broker-vk %s (liqo %s, %s)\n",
				version, moduleVersion("github.com/liqotech/liqo"), runtime.Version())
		},
	}
}

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == path {
				return dep.Version
			}
		}
	}
	return "unknown"
}
