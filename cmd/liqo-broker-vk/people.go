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

// The names by which kubectl finds a plugin and its completion.
const (
	pluginName     = "kubectl-broker"
	completionName = "kubectl_complete-broker"
)

// forPeople is the annotation of commands whose errors have kubectl's form.
const forPeople = "for-people"

// people makes the commands of the kubectl plugin.
type people struct {
	// open is (*connection).open except in tests.
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

// newPluginCommand returns the root command of the kubectl plugin, without the roles that run as servers.
func newPluginCommand(p people) *cobra.Command {
	cmd := &cobra.Command{
		Use:   pluginName,
		Short: "Show and change a federation of Liqo clusters from its broker",
		Long: "kubectl broker shows the provider clusters of a Liqo broker and the placements of its pods, and enables, disables\n" +
			"and drains providers. It needs a kubeconfig of the broker's cluster.",
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

// commandOf returns the root command for the name of the program. kubectl completes the arguments of a plugin with a
// second program, which is a link to this one.
func commandOf(program string, args []string, logs io.Writer) (*cobra.Command, []string) {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginName:
		return newPluginCommand(newPeople()), args
	case completionName:
		return newPluginCommand(newPeople()), append([]string{cobra.ShellCompRequestCmd}, args...)
	default:
		return newRootCommand(logs, args), args
	}
}

// personsError is an error of a command of the plugin.
type personsError struct{ error }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *personsError) Unwrap() error { return e.error }

// asked wraps the errors of the plugin's commands in a personsError.
func asked(cmd *cobra.Command, err error) error {
	for ; cmd != nil; cmd = cmd.Parent() {
		if _, ok := cmd.Annotations[forPeople]; ok {
			return &personsError{err}
		}
	}
	return err
}

// failure returns the text of an error, in lines.
func failure(err error) []string {
	var persons *personsError
	if errors.As(err, &persons) {
		return cli.Words(persons.error)
	}
	return []string{"liqo-broker-vk: " + strings.Join(strings.Fields(err.Error()), " ") + missing(err)}
}

// missing names what is not installed if the API server does not serve a kind.
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

// with returns a function that opens a session and runs a command in it.
func (p people) with(c *connection, do func(context.Context, *cli.Session, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.open(c, cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, args)
	}
}
