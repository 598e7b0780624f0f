package plugin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
)

// newCheckCommand returns the command that checks the installation.
func (p Plugin) newCheckCommand() *cobra.Command {
	var c Connection
	o := kubectl.CheckOptions{Version: p.Build.Version, Liqo: p.Build.Liqo}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the installation in the broker's cluster",
		Long: "check finds out whether the installation in the broker's cluster is complete: versions, CRDs, admission policies, the\n" +
			"broker and its node, virtual kubelets, providers, credentials, clocks, and the rights of the caller. For each fault it\n" +
			"prints a command that mends it, or shows its cause. It only reads the API. The exit code is 1 if a check failed.",
		Example: "  # Check the installation\n  {} check\n\n  # List the checks that failed\n" +
			"  {} check -o json | jq -r '.checks[] | select(.state == \"FAIL\") | .name'",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			var f flags.Faults
			if f.OneOf("--output", o.Output, kubectl.CheckOutputs()...); f != nil {
				return f
			}
			return p.inSession(&c, func(ctx context.Context, s *kubectl.Session, _ []string) error {
				return s.Check(ctx, &o)
			})(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVarP(&o.Output, "output", "o", "table", "table, json or yaml")
	flags.InstallBrokerNode(f, &o.Node)
	c.install(f)
	p.completeConnection(cmd, &c)
	complete(cmd, "output", cobra.FixedCompletions(kubectl.CheckOutputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
