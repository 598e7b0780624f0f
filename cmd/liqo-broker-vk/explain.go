package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/cli"
)

// newExplainCommand shows people what the broker would decide.
func (p people) newExplainCommand() *cobra.Command {
	var c connection
	var node, output string
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Show what the broker thinks of every provider for a pod",
		Long: "explain shows, for a pod of the broker's node, which provider clusters could have it and which one would\n" +
			"be chosen now, with the reason why each of the others was filtered, or its score. It only reads the API.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one pod, not %d (see '%s --help')", len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var f faults
			f.oneOf("--output", output, cli.ExplainOutputs()...)
			if len(f) > 0 {
				return f
			}
			return p.with(&c, func(ctx context.Context, s *cli.Session, pods []string) error {
				return s.Explain(ctx, node, pods[0], output)
			})(cmd, args)
		},
		ValidArgsFunction: p.suggestOne(p.suggestPods(&c, &node)),
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "table", "table, wide, json or yaml")
	installBrokerNode(f, &node)
	c.install(f)
	p.completeConnection(cmd, &c)
	complete(cmd, "output", cobra.FixedCompletions(cli.ExplainOutputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func installBrokerNode(f *pflag.FlagSet, node *string) {
	f.StringVar(node, "broker-node", newBrokerOptions().nodeName, "The name of the broker's Node")
}
