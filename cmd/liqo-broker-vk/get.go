package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capacitorset/liqo-broker-vk/pkg/cli"
)

// getOptions is the command line of get.
type getOptions struct {
	connection
	query    cli.Query
	selector string
}

// asked is the query of a command line.
func (o *getOptions) asked(names []string) (cli.Query, error) {
	q := o.query
	q.Names = names
	if o.selector == "" {
		return q, nil
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return q, fmt.Errorf("--selector=%s: %w", o.selector, err)
	}
	q.Labels = selector
	return q, nil
}

func (p people) newGetCommand() *cobra.Command {
	o := &getOptions{}
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show provider clusters, or where pods are",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%s is not known here: ask for providers or placements", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return errors.New("say what to get: providers or placements") },
	}
	f := cmd.PersistentFlags()
	f.BoolVarP(&o.query.AllNamespaces, "all-namespaces", "A", false, "Look in all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "Only what has these labels")
	f.StringVarP(&o.query.Output, "output", "o", "", "One of "+strings.Join(cli.Outputs(), ", "))
	f.BoolVar(&o.query.NoHeaders, "no-headers", false, "Leave out the names of the columns")
	f.BoolVarP(&o.query.Watch, "watch", "w", false, "Go on to show what changes")
	o.install(f)
	cmd.AddCommand(p.newGetProvidersCommand(o), p.newGetPlacementsCommand(o))
	p.completeConnection(cmd, &o.connection)
	complete(cmd, "output", cobra.FixedCompletions(cli.Outputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p people) newGetProvidersCommand(o *getOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "providers [NAME...]",
		Aliases: []string{"provider", "providercluster", "providerclusters", "pcl"},
		Short:   "Show the provider clusters",
		Long: "providers shows the provider clusters: whether they can be given pods and what speaks against it, how many\n" +
			"pods they have, what is assigned of what they granted, and how well they do.",
		RunE: p.with(&o.connection, func(ctx context.Context, s *cli.Session, names []string) error {
			q, err := o.asked(names)
			if err != nil {
				return err
			}
			return s.GetProviders(ctx, q)
		}),
		ValidArgsFunction: p.suggest(&o.connection, (*cli.Session).ProviderNames),
	}
	cmd.Flags().StringVar(&o.query.Consumer, "consumer", "", "Show which ones the consumer with this cluster id has selected")
	complete(cmd, "consumer", p.suggest(&o.connection, (*cli.Session).ConsumerNames))
	return cmd
}

func (p people) newGetPlacementsCommand(o *getOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "placements [POD...]",
		Aliases: []string{"placement"},
		Short:   "Show at which provider pods are",
		Long: "placements shows the pods that are bound to the broker's node: from which consumer they come, and at which\n" +
			"provider they are, since when and by which score; or why they wait (-o wide).",
		RunE: p.with(&o.connection, func(ctx context.Context, s *cli.Session, names []string) error {
			q, err := o.asked(names)
			if err != nil {
				return err
			}
			return s.GetPlacements(ctx, q)
		}),
		ValidArgsFunction: p.suggestPods(&o.connection, &o.query.Node),
	}
	f := cmd.Flags()
	f.StringVar(&o.query.Provider, "provider", "", "Only pods at the provider with this cluster id")
	f.StringVar(&o.query.Consumer, "consumer", "", "Only pods of the consumer with this cluster id")
	installBrokerNode(f, &o.query.Node)
	complete(cmd, "provider", p.suggest(&o.connection, (*cli.Session).ProviderNames))
	complete(cmd, "consumer", p.suggest(&o.connection, (*cli.Session).ConsumerNames))
	return cmd
}
