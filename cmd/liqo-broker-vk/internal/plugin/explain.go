package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
)

// newExplainCommand returns the command that shows how the broker would decide.
func (p Plugin) newExplainCommand() *cobra.Command {
	var c Connection
	var node, output string
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Show the verdict on every provider for a pod",
		Long: "explain shows which provider clusters fit a pod of the broker's node and which one would be chosen now, with the\n" +
			"score of each, or the reason why it was filtered. It only reads the API.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one pod, not %d (see '%s --help')", len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var f flags.Faults
			if f.OneOf("--output", output, kubectl.ExplainOutputs()...); f != nil {
				return f
			}
			return p.inSession(&c, func(ctx context.Context, s *kubectl.Session, pods []string) error {
				return s.Explain(ctx, node, pods[0], output)
			})(cmd, args)
		},
		ValidArgsFunction: p.suggestOne(p.suggestPods(&c, &node)),
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "table", "table, wide, json or yaml")
	flags.InstallBrokerNode(f, &node)
	c.install(f)
	p.completeConnection(cmd, &c)
	complete(cmd, "output", cobra.FixedCompletions(kubectl.ExplainOutputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
