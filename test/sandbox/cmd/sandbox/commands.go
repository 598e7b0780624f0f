package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

func statusCommand(name *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every process with its memory and CPU time",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %s: use json, or omit -o for a table", output)
			}
			body, err := sandbox.Call(cmd.Context(), *name, "status", nil)
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := cmd.OutOrStdout().Write(body)
				return err
			}
			return printStatus(cmd, body)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json; a table if not set")
	return cmd
}

func printStatus(cmd *cobra.Command, body []byte) error {
	var st sandbox.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tCOMPONENT\tPID\tMEMORY\tCPU\tLOG")
	for i := range st.Processes {
		p := &st.Processes[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d MB\t%.1f s\t%s\n", p.Cluster, p.Component, p.PID, p.Memory/1e6, p.CPU.Seconds(), p.Log)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(st.Held) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "killed; start again with sandbox restart: %s\n", strings.Join(st.Held, ", "))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d processes, %.2f GB\n", len(st.Processes), float64(st.Memory())/1e9)
	return nil
}

func kubeconfigCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print the path of a cluster's kubeconfig",
		Long:  "Print the path of a cluster's kubeconfig:\n\n  kubectl --kubeconfig $(sandbox kubeconfig broker) get nodes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, path, err := kubeconfigOf(*name, args[0])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return err
		},
	}
}

func kubectlCommand(name *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl NAME [arguments]",
		Short: "Run kubectl, with the plugin kubectl-broker, against a cluster",
		Long: "Run Kubernetes' own kubectl against a cluster. With the broker, its plugin kubectl-broker is available:\n\n" +
			"  sandbox kubectl consumer1 get pods -A\n  sandbox kubectl broker broker get providers",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			state, kubeconfig, err := kubeconfigOf(*name, args[0])
			if err != nil {
				return err
			}
			for name, value := range map[string]string{
				"KUBECONFIG": kubeconfig, "PATH": state.Tools + string(os.PathListSeparator) + os.Getenv("PATH"),
			} {
				if err := os.Setenv(name, value); err != nil {
					return err
				}
			}
			// It replaces this process: signals, terminal and exit code are kubectl's.
			return syscall.Exec(filepath.Join(state.Tools, "kubectl"), append([]string{"kubectl"}, args[1:]...), os.Environ())
		},
	}
	cmd.Flags().SetInterspersed(false) // The arguments after the cluster are for kubectl.
	return cmd
}

// kubeconfigOf returns the path of a cluster's kubeconfig.
func kubeconfigOf(name, cluster string) (sandbox.State, string, error) {
	state, err := sandbox.ReadState(name)
	if err != nil {
		return state, "", err
	}
	path, ok := state.Kubeconfigs[cluster]
	if !ok {
		return state, "", fmt.Errorf("no cluster %q; there are %s", cluster,
			strings.Join(slices.Sorted(maps.Keys(state.Kubeconfigs)), ", "))
	}
	return state, path, nil
}

func faultCommands(name *string) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range []struct{ verb, short string }{
		{"freeze", "Pause processes (SIGSTOP); connections stay open and are not answered"},
		{"resume", "Resume processes that freeze paused"},
		{"kill", "Kill processes (SIGKILL); they stay down until sandbox restart"},
		{"restart", "Restart processes; start those that were killed"},
	} {
		out = append(out, &cobra.Command{
			Use:   c.verb + " CLUSTER[/COMPONENT]",
			Short: c.short,
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := sandbox.Call(cmd.Context(), *name, c.verb, url.Values{"target": {args[0]}})
				return err
			},
		})
	}
	return out
}

func linkCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "link up|down A B",
		Short: "Set the network between two connected clusters up or down (needs --networking)",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "up" && args[0] != "down" {
				return fmt.Errorf("link %s: use up or down", args[0])
			}
			_, err := sandbox.Call(cmd.Context(), *name, "link", url.Values{"state": {args[0]}, "a": {args[1]}, "b": {args[2]}})
			return err
		},
	}
}
