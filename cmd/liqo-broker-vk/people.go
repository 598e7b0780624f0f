package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cli"
)

// The names by which kubectl finds a plugin, and what completes its arguments.
const (
	pluginName     = "kubectl-broker"
	completionName = "kubectl_complete-broker"
)

// forPeople marks the commands whose failures are worded as kubectl's.
const forPeople = "for-people"

// people makes the commands for people at a terminal.
type people struct {
	// open is (*connection).open, but for tests.
	open func(*connection, *cobra.Command) (*cli.Session, error)
}

func newPeople() people { return people{open: (*connection).open} }

func (p people) commands() []*cobra.Command {
	commands := []*cobra.Command{
		p.newGetCommand(), p.newExplainCommand(), p.newEnableCommand(), p.newDisableCommand(),
		p.newCordonCommand(), p.newUncordonCommand(), p.newDrainCommand(),
	}
	for _, cmd := range commands {
		mark(cmd)
	}
	return commands
}

func mark(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[forPeople] = ""
	cmd.SetFlagErrorFunc(pointToHelp)
}

// newPluginCommand is the root under kubectl: with the commands for people only.
func newPluginCommand(p people) *cobra.Command {
	cmd := &cobra.Command{
		Use:   pluginName,
		Short: "Show and change a federation of Liqo clusters from its broker",
		Long: "kubectl broker shows what the provider clusters of a Liqo broker offer and where its pods are, and says which\n" +
			"providers take part. It needs a kubeconfig of the broker's cluster, and nothing else.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl broker"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	mark(cmd)
	cmd.AddCommand(p.commands()...)
	cmd.AddCommand(newVersionCommand())
	return cmd
}

// commandOf chooses the root by the name that the program was started under. kubectl has arguments completed by a
// program of its own, which is a link to this one.
func commandOf(program string, args []string, logs io.Writer) (*cobra.Command, []string) {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginName:
		return newPluginCommand(newPeople()), args
	case completionName:
		return newPluginCommand(newPeople()), append([]string{cobra.ShellCompRequestCmd}, args...)
	default:
		return newRootCommand(logs), args
	}
}

// personsError is a failure of a command for people.
type personsError struct{ error }

// Unwrap has errors.Is and errors.As look inside.
func (e *personsError) Unwrap() error { return e.error }

// asked marks an error that a person is to read.
func asked(cmd *cobra.Command, err error) error {
	for ; cmd != nil; cmd = cmd.Parent() {
		if _, ok := cmd.Annotations[forPeople]; ok {
			return &personsError{err}
		}
	}
	return err
}

// failure is what is said of an error, in lines.
func failure(err error) []string {
	var persons *personsError
	if errors.As(err, &persons) {
		return cli.Words(persons.error)
	}
	return []string{"liqo-broker-vk: " + strings.Join(strings.Fields(err.Error()), " ") + missing(err)}
}

// missing asks, if the API server does not know a kind, for what would bring it.
func missing(err error) string {
	var kind *meta.NoKindMatchError
	switch {
	case !errors.As(err, &kind):
		return ""
	case kind.GroupKind.Group == v1alpha1.GroupVersion().Group:
		return ": are the CRDs of the broker installed there?"
	case strings.HasSuffix(kind.GroupKind.Group, ".liqo.io"):
		return ": is Liqo v1.2 installed there?"
	}
	return ""
}

// with runs a command in a session.
func (p people) with(c *connection, do func(context.Context, *cli.Session, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.open(c, cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, args)
	}
}
