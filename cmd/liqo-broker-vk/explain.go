package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/liqotech/liqo/pkg/utils"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	explanation "github.com/capacitorset/liqo-broker-vk/pkg/explain"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
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
			return explanation.Print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "The kubeconfig of the broker's cluster; by default that of the environment")
	f.StringVarP(&namespace, "namespace", "n", "default", "The namespace of the pod")
	f.StringVar(&node, "broker-node", newBrokerOptions().nodeName, "The name of the broker's Node")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func explain(ctx context.Context, kubeconfig, node string, pod types.NamespacedName) (*explanation.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	config, err := utils.GetRestConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	scheme, err := apischeme.New()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	return explanation.Pod(ctx, c, node, pod, time.Now())
}
