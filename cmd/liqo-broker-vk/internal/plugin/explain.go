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
		Use:     "explain POD",
		Aliases: []string{"why"}, // explain shows schemas in kubectl.
		Short:   "Show the verdict on every provider for a pod",
		Example: "  # Show why web-0 is at its provider\n  {} explain -n shop-consumer1 web-0\n\n" +
			"  # Show how each provider was scored, for a program\n  {} why -n shop-consumer1 pod/web-0 -o json",
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
				pod, err := kubectl.Pods().Name(pods[0])
				if err != nil {
					return err
				}
				return s.Explain(ctx, node, pod, output)
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
