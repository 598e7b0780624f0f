package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
)

// getOptions are the flags of get.
type getOptions struct {
	Connection
	query    kubectl.Query
	selector string
	// watch is rejected: users watch with kubectl.
	watch bool
}

// run returns a command that prints the objects that the flags select. instead is the kubectl command that watches the
// same objects.
func (o *getOptions) run(p Plugin, kind kubectl.Kind, get func(*kubectl.Session, context.Context, kubectl.Query) error, instead string,
) func(*cobra.Command, []string) error {
	return p.inSession(&o.Connection, func(ctx context.Context, s *kubectl.Session, args []string) error {
		if o.watch {
			return fmt.Errorf("--watch is not supported: use '%s'", instead)
		}
		q := o.query
		var err error
		if q.Names, err = kind.Names(args); err != nil {
			return err
		}
		if q.Provider, err = kubectl.Providers().Name(q.Provider); err != nil {
			return fmt.Errorf("--provider: %w", err)
		}
		if q.Consumer, err = kubectl.Consumers().Name(q.Consumer); err != nil {
			return fmt.Errorf("--consumer: %w", err)
		}
		if o.selector != "" {
			selector, err := labels.Parse(o.selector)
			if err != nil {
				return fmt.Errorf("--selector=%s: %w", o.selector, err)
			}
			q.Labels = selector
		}
		return get(s, ctx, q)
	})
}

func (p Plugin) newGetCommand() *cobra.Command {
	o := &getOptions{}
	cmd := &cobra.Command{
		Use: "get",
		Example: "  # The providers\n  {} get providers\n\n  # The pods of all consumers\n  {} get placements -A\n\n" +
			"  # The policies\n  {} get policies\n\n  # The shares of consumers\n  {} get consumers",
		Short: "Show provider clusters, the placements of pods, policies, or consumers",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown resource %q: use providers, placements, policies or consumers", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no resource: use providers, placements, policies or consumers")
		},
	}
	f := cmd.PersistentFlags()
	f.BoolVarP(&o.query.AllNamespaces, "all-namespaces", "A", false, "Show pods of all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "Only objects with these labels")
	f.StringVarP(&o.query.Output, "output", "o", "", "One of "+strings.Join(kubectl.Outputs(), ", "))
	f.BoolVar(&o.query.NoHeaders, "no-headers", false, "Omit the header of the table")
	f.BoolVarP(&o.watch, "watch", "w", false, "Not supported")
	_ = f.MarkHidden("watch") // It fails for a flag that does not exist.
	o.install(f)
	cmd.AddCommand(p.newGetProvidersCommand(o), p.newGetPlacementsCommand(o), p.newGetPoliciesCommand(o), p.newGetConsumersCommand(o))
	p.completeConnection(cmd, &o.Connection)
	complete(cmd, "output", cobra.FixedCompletions(kubectl.Outputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p Plugin) newGetProvidersCommand(o *getOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "providers [NAME...]",
		Aliases: []string{"provider", "providercluster", "providerclusters", "pcl"},
		Short:   "Show the provider clusters",
		Example: "  # All providers, with the reason why one gets no pods\n  {} get providers -o wide\n\n" +
			"  # The providers that consumer1 selected\n  {} get providers --consumer consumer1",
		Long: "providers shows the provider clusters: whether pods can be assigned to them, how many pods they have, how much\n" +
			"of their granted resources is assigned, and their KPIs.",
		RunE:              o.run(p, kubectl.Providers(), (*kubectl.Session).GetProviders, "kubectl get providerclusters -w"),
		ValidArgsFunction: p.suggest(&o.Connection, (*kubectl.Session).ProviderNames),
	}
	cmd.Flags().StringVar(&o.query.Consumer, "consumer", "",
		"Add a column that shows whether the consumer with this cluster id selected the provider")
	complete(cmd, "consumer", p.suggest(&o.Connection, (*kubectl.Session).ConsumerNames))
	return cmd
}

func (p Plugin) newGetPlacementsCommand(o *getOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "placements [POD...]",
		Aliases: []string{"placement"},
		Short:   "Show the provider clusters of pods",
		Example: "  # The pods of all consumers\n  {} get placements -A\n\n" +
			"  # The pods of consumer1 at provider1\n  {} get placements -A --consumer consumer1 --provider provider1\n\n" +
			"  # Why pods of a namespace wait\n  {} get placements -n shop-consumer1 -o wide",
		Long: "placements shows the pods that are bound to the broker's node: their consumer, their provider cluster, the score\n" +
			"and the age of the assignment. With -o wide it also shows the reason, or why a pod has no provider.",
		RunE:              o.run(p, kubectl.Pods(), (*kubectl.Session).GetPlacements, "kubectl get pods -L "+v1alpha1.ProviderLabel+" -w"),
		ValidArgsFunction: p.suggestPods(&o.Connection, &o.query.Node),
	}
	f := cmd.Flags()
	f.StringVar(&o.query.Provider, "provider", "", "Only pods assigned to the provider with this cluster id")
	f.StringVar(&o.query.Consumer, "consumer", "", "Only pods of the consumer with this cluster id")
	flags.InstallBrokerNode(f, &o.query.Node)
	complete(cmd, "provider", p.suggest(&o.Connection, (*kubectl.Session).ProviderNames))
	complete(cmd, "consumer", p.suggest(&o.Connection, (*kubectl.Session).ConsumerNames))
	return cmd
}

func (p Plugin) newGetPoliciesCommand(o *getOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "policies [NAME...]",
		Aliases: []string{"policy", "placementpolicy", "placementpolicies", "pp"},
		Short:   "Show the placement policies",
		Long: "policies shows the PlacementPolicies: which providers may run which pods, and how many assigned pods use them. A\n" +
			"policy without a priority is the selection of its consumers. With -o wide it also shows selectors, weights and the\n" +
			"filter, and why a policy is not valid.",
		Example: "  # All policies, with the reason why one is not valid\n  {} get policies -o wide\n\n" +
			"  # One policy, with all fields\n  {} get policies cheap -o yaml",
		RunE:              o.run(p, kubectl.Policies(), (*kubectl.Session).GetPolicies, "kubectl get placementpolicies -w"),
		ValidArgsFunction: p.suggest(&o.Connection, (*kubectl.Session).PolicyNames),
	}
}

func (p Plugin) newGetConsumersCommand(o *getOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "consumers [NAME...]",
		Aliases: []string{"consumer", "consumercluster", "consumerclusters", "ccl"},
		Short:   "Show the shares of consumers",
		Long: "consumers shows the ConsumerClusters: the weight and the share of each consumer, its pods, and their requests\n" +
			"beside its grant. With -o wide it also shows its guarantee and its limits, and the resources that it has borrowed,\n" +
			"has lent, or has to return.",
		Example: "  # All consumers, with guarantees and loans\n  {} get consumers -o wide\n\n" +
			"  # One consumer, with all fields\n  {} get consumers consumer1 -o yaml",
		RunE:              o.run(p, kubectl.ConsumerClusters(), (*kubectl.Session).GetConsumers, "kubectl get consumerclusters -w"),
		ValidArgsFunction: p.suggest(&o.Connection, (*kubectl.Session).ConsumerClusterNames),
	}
}
