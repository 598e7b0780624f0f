package plugin

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
)

// completionTimeout is the time that a shell waits after Tab.
const completionTimeout = 3 * time.Second

// complete sets the completion of a flag.
func complete(cmd *cobra.Command, flag string, how cobra.CompletionFunc) {
	// It fails for a flag that does not exist or already has a completion, which a test would detect.
	if err := cmd.RegisterFlagCompletionFunc(flag, how); err != nil {
		panic(err)
	}
}

// suggest completes with names from the cluster, or without any if the API server does not answer.
func (p Plugin) suggest(c *Connection, names func(*kubectl.Session, context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		s, err := p.Open(c, cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found, err := names(s, ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return unfinished(found, args, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

func (p Plugin) suggestPods(c *Connection, node *string) cobra.CompletionFunc {
	return p.suggest(c, func(s *kubectl.Session, ctx context.Context) ([]string, error) { return s.PodNames(ctx, *node) })
}

// suggestOne completes the single argument of a command.
func (p Plugin) suggestOne(how cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return how(cmd, args, begun)
	}
}

// unfinished returns the names with a prefix that are not yet among the arguments.
func unfinished(names, given []string, begun string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, begun) || slices.Contains(given, name)
	})
}

// completeConnection completes the flags of a connection.
func (p Plugin) completeConnection(cmd *cobra.Command, c *Connection) {
	complete(cmd, clientcmd.FlagNamespace, p.suggest(c, (*kubectl.Session).NamespaceNames))
	for flag, names := range map[string]func(*api.Config) []string{
		clientcmd.FlagContext:      func(k *api.Config) []string { return sorted(k.Contexts) },
		clientcmd.FlagClusterName:  func(k *api.Config) []string { return sorted(k.Clusters) },
		clientcmd.FlagAuthInfoName: func(k *api.Config) []string { return sorted(k.AuthInfos) },
	} {
		complete(cmd, flag, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			kubeconfig, err := c.loader().RawConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return unfinished(names(&kubeconfig), nil, begun), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

func sorted[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
