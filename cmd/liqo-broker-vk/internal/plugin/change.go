package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
)

// newChange returns a command that changes providers.
func (p Plugin) newChange(c *Connection, use, short, long, example string,
	do func(context.Context, *kubectl.Session, []string) error,
) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " PROVIDER...", Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name at least one provider (see '%s --help')", cmd.CommandPath())
			}
			return nil
		},
		RunE: p.inSession(c, func(ctx context.Context, s *kubectl.Session, args []string) error {
			providers, err := kubectl.Providers().Names(args)
			if err != nil {
				return err
			}
			return do(ctx, s, providers)
		}),
		ValidArgsFunction: p.suggest(c, (*kubectl.Session).ProviderNames),
	}
	c.install(cmd.Flags())
	p.completeConnection(cmd, c)
	return cmd
}

// newEnableCommand returns the command enable, or disable.
func (p Plugin) newEnableCommand(on bool) *cobra.Command {
	use, short := "enable", "Let providers get new pods"
	example := "  # Let provider1 get new pods\n  {} enable provider1\n\n  # Add provider1 and provider2 to the selection of consumer1\n" +
		"  {} enable --consumer consumer1 provider1 provider2"
	long := "enable lets providers get new pods of all consumers. It does not end a cordon or a drain (uncordon does). With\n" +
		"--consumer it adds the providers to the selection of that consumer instead."
	if !on {
		use, short = "disable", "Keep new pods away from providers"
		example = "  # Keep new pods away from provider1; its pods stay\n  {} disable provider1\n\n" +
			"  # Remove provider1 from the selection of consumer1\n  {} disable --consumer consumer1 provider1"
		long = "disable keeps new pods of all consumers away from providers. Pods that run there stay; drain moves them. With\n" +
			"--consumer it removes the providers from the selection of that consumer instead."
	}
	var c Connection
	var consumer string
	cmd := p.newChange(&c, use, short, long, example, func(ctx context.Context, s *kubectl.Session, providers []string) error {
		if consumer == "" {
			return s.Enable(ctx, providers, on)
		}
		id, err := kubectl.Consumers().Name(consumer)
		if err != nil {
			return fmt.Errorf("--consumer: %w", err)
		}
		return s.Select(ctx, id, providers, on)
	})
	cmd.Flags().StringVar(&consumer, "consumer", "", "Change the selection of the consumer with this cluster id only")
	complete(cmd, "consumer", p.suggest(&c, (*kubectl.Session).ConsumerNames))
	return cmd
}

func (p Plugin) newCordonCommand() *cobra.Command {
	var c Connection
	return p.newChange(&c, "cordon", "Mark providers as unschedulable",
		"cordon keeps new pods away from providers, as kubectl cordon does from a Node. Pods that run there stay.",
		"  # Keep new pods away from all providers whose region is eu-west\n"+
			"  {} cordon $({} get providers -l region=eu-west -o name)",
		func(ctx context.Context, s *kubectl.Session, providers []string) error {
			return s.Cordon(ctx, providers)
		})
}

func (p Plugin) newUncordonCommand() *cobra.Command {
	var c Connection
	cmd := p.newChange(&c, "uncordon", "End a cordon or a drain",
		"uncordon lets providers that were cordoned or drained get new pods again. Disabled providers stay disabled.",
		"  # Let provider1 get new pods after its maintenance\n  {} uncordon provider1",
		func(ctx context.Context, s *kubectl.Session, providers []string) error {
			return s.Uncordon(ctx, providers)
		})
	cmd.Aliases = []string{"undrain"}
	return cmd
}

func (p Plugin) newDrainCommand() *cobra.Command {
	var c Connection
	var o kubectl.DrainOptions
	var preview struct {
		set          bool
		node, output string
	}
	cmd := p.newChange(&c, "drain", "Move the pods of providers to other providers",
		"drain sets spec.drain of providers. The broker then moves their pods to other providers and assigns no new ones until\n"+
			"uncordon. drain waits until the condition Drained is True, and prints its message when it changes. With --dry-run\n"+
			"it changes nothing, and shows where each pod would go, which would wait, and which would stay with its volumes.",
		"  # Show where the pods of provider1 would go\n  {} drain provider1 --dry-run\n\n"+
			"  # Move them, and wait for at most ten minutes\n  {} drain provider1 --timeout=10m",
		func(ctx context.Context, s *kubectl.Session, providers []string) error {
			if preview.set {
				var f flags.Faults
				if f.OneOf("--output", preview.output, kubectl.PreviewOutputs()...); f != nil {
					return f
				}
				return s.PreviewDrain(ctx, preview.node, providers, preview.output)
			}
			return s.Drain(ctx, providers, o)
		})
	f := cmd.Flags()
	f.BoolVar(&o.Wait, "wait", true, "Wait until the condition Drained of the providers is True")
	f.BoolVar(&preview.set, "dry-run", false, "Only show what would happen to the pods")
	flags.InstallBrokerNode(f, &preview.node)
	f.StringVarP(&preview.output, "output", "o", "table", "The output of --dry-run: table, json or yaml")
	complete(cmd, "output", cobra.FixedCompletions(kubectl.PreviewOutputs(), cobra.ShellCompDirectiveNoFileComp))
	f.DurationVar(&o.Timeout, "timeout", 0, "How long to wait, 0 for no limit; then the command fails, and the broker continues the drain")
	return cmd
}
