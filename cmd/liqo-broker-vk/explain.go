package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/liqotech/liqo/pkg/utils"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
)

// explainTimeout bounds all the requests of explain.
const explainTimeout = 30 * time.Second

// newExplainCommand shows people what the broker would decide.
func newExplainCommand() *cobra.Command {
	var kubeconfig, namespace, node, output string
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Show what the broker thinks of every provider for a pod",
		Long: "explain shows, for a pod of the broker's node, which provider clusters could have it and which one would\n" +
			"be chosen now, with the reason why each of the others was filtered, or its score. It only reads the API.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var f faults
			f.oneOf("--output", output, "table", "json")
			if len(f) > 0 {
				return f
			}
			explanation, err := explain(cmd.Context(), kubeconfig, node, types.NamespacedName{Namespace: namespace, Name: args[0]})
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(explanation)
			}
			return printExplanation(cmd.OutOrStdout(), explanation)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "The kubeconfig of the broker's cluster; by default that of the environment")
	f.StringVarP(&namespace, "namespace", "n", "default", "The namespace of the pod")
	f.StringVar(&node, "broker-node", newBrokerOptions().nodeName, "The name of the broker's Node")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func explain(ctx context.Context, kubeconfig, node string, pod types.NamespacedName) (*broker.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	config, err := utils.GetRestConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	scheme, err := broker.NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	return broker.Explain(ctx, c, node, pod, time.Now())
}

// printExplanation prints one line for every provider, and one column for every score that counts.
func printExplanation(out io.Writer, e *broker.Explanation) error {
	var scores []string
	for _, p := range e.Providers {
		for score := range p.Points {
			if !slices.Contains(scores, score) {
				scores = append(scores, score)
			}
		}
	}
	slices.Sort(scores)

	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(append([]string{"provider", "verdict", "score"}, scores...), "\t")))
	for _, p := range e.Providers {
		cells := []string{p.Provider, "fits", fmt.Sprint(p.Score)}
		if p.Provider == e.Chosen {
			cells[1] = "chosen"
		}
		if p.Filtered != "" {
			cells[1], cells[2] = p.Filtered, "-"
		}
		for _, score := range scores {
			if points, ok := p.Points[score]; ok {
				cells = append(cells, fmt.Sprint(points))
			} else {
				cells = append(cells, "-")
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, e.Message)
	return err
}
