package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/pkg/cli"
)

// newChange is a command that changes providers.
func (p people) newChange(c *connection, use, short, long string,
	do func(context.Context, *cli.Session, []string) error,
) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " PROVIDER...", Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name at least one provider (see '%s --help')", cmd.CommandPath())
			}
			return nil
		},
		RunE:              p.with(c, do),
		ValidArgsFunction: p.suggest(c, (*cli.Session).ProviderNames),
	}
	c.install(cmd.Flags())
	p.completeConnection(cmd, c)
	return cmd
}

func (p people) newEnableCommand() *cobra.Command {
	return p.newSwitch("enable", true, "Let providers take part",
		"enable lets providers take part, for everybody: they get new pods, unless they are cordoned or drained, which it\n"+
			"does not end (uncordon does). With --consumer it adds them to the choice of that consumer instead.")
}

func (p people) newDisableCommand() *cobra.Command {
	return p.newSwitch("disable", false, "Let providers take part no longer",
		"disable keeps new pods away from providers, for everybody; pods that are there stay (drain moves them). With\n"+
			"--consumer it takes them out of the choice of that consumer instead.")
}

func (p people) newSwitch(use string, on bool, short, long string) *cobra.Command {
	var c connection
	var consumer string
	cmd := p.newChange(&c, use, short, long, func(ctx context.Context, s *cli.Session, providers []string) error {
		if consumer != "" {
			return s.Select(ctx, consumer, providers, on)
		}
		return s.Enable(ctx, providers, on)
	})
	cmd.Flags().StringVar(&consumer, "consumer", "", "Change what the consumer with this cluster id selects, and nothing else")
	complete(cmd, "consumer", p.suggest(&c, (*cli.Session).ConsumerNames))
	return cmd
}

func (p people) newCordonCommand() *cobra.Command {
	var c connection
	return p.newChange(&c, "cordon", "Keep new pods away from providers for a while",
		"cordon keeps new pods away from providers, as of a Node; pods that are there stay.",
		func(ctx context.Context, s *cli.Session, providers []string) error { return s.Cordon(ctx, providers) })
}

func (p people) newUncordonCommand() *cobra.Command {
	var c connection
	cmd := p.newChange(&c, "uncordon", "End what cordon and drain began",
		"uncordon lets providers have new pods again that were cordoned or drained. Those that are disabled stay so.",
		func(ctx context.Context, s *cli.Session, providers []string) error { return s.Uncordon(ctx, providers) })
	cmd.Aliases = []string{"undrain"}
	return cmd
}

func (p people) newDrainCommand() *cobra.Command {
	var c connection
	var o cli.DrainOptions
	cmd := p.newChange(&c, "drain", "Move the pods of providers elsewhere",
		"drain has the broker move the pods of providers elsewhere, and keeps new ones away until uncordon. It shows how\n"+
			"the pods leave, and ends when none is left; the broker goes on when drain itself is interrupted.",
		func(ctx context.Context, s *cli.Session, providers []string) error { return s.Drain(ctx, providers, o) })
	f := cmd.Flags()
	f.BoolVar(&o.Wait, "wait", true, "Wait until the providers have no pods")
	f.DurationVar(&o.Timeout, "timeout", 0*time.Second, "How long to wait, 0 for ever; after it drain fails, and the broker goes on")
	installBrokerNode(f, &o.Node)
	return cmd
}
