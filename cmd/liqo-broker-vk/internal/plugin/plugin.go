// Package plugin has the commands of the kubectl plugin: they show and change a federation.
package plugin

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
)

// Name is the name with which kubectl finds the plugin.
const Name = "kubectl-broker"

// ByName returns the command that people type for the name of a program with which kubectl finds the plugin, and whether
// the name is the one for completion. krew installs liqo-broker under the second name, with _ for -, because broker alone
// says too little among all plugins.
func ByName(program string) (command string, completes, found bool) {
	name, completes := strings.CutPrefix(program, "kubectl_complete-")
	if !completes {
		if name, found = strings.CutPrefix(program, "kubectl-"); !found {
			return "", false, false
		}
	}
	switch name {
	case "broker":
		return "kubectl broker", completes, true
	case "liqo_broker":
		return "kubectl liqo-broker", completes, true
	}
	return "", false, false
}

// ofPlugin is the annotation of commands whose errors have kubectl's form.
const ofPlugin = "of-plugin"

// Plugin makes the commands of the kubectl plugin.
type Plugin struct {
	// Build describes the program.
	Build build.Info
	// Open opens the session of a command; tests replace it.
	Open func(*Connection, *cobra.Command) (*kubectl.Session, error)
}

// New returns the plugin of a program.
func New(built build.Info) Plugin {
	return Plugin{Build: built, Open: func(c *Connection, cmd *cobra.Command) (*kubectl.Session, error) { return c.open(cmd, built) }}
}

// Commands returns the commands, whose examples name the program as people type it. The root command of the program has
// them too.
func (p Plugin) Commands(typed string) []*cobra.Command {
	commands := []*cobra.Command{
		p.newGetCommand(), p.newExplainCommand(), p.newCheckCommand(), p.newEnableCommand(true), p.newEnableCommand(false),
		p.newCordonCommand(), p.newUncordonCommand(), p.newDrainCommand(),
	}
	for _, cmd := range commands {
		mark(cmd)
		name(cmd, typed)
	}
	return commands
}

// placeholder stands in examples for the name of the program.
const placeholder = "{}"

// name writes the name of the program into the examples of a command and its subcommands.
func name(cmd *cobra.Command, typed string) {
	cmd.Example = strings.ReplaceAll(cmd.Example, placeholder, typed)
	for _, sub := range cmd.Commands() {
		name(sub, typed)
	}
}

func mark(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[ofPlugin] = ""
	cmd.SetFlagErrorFunc(flags.PointToHelp)
}

// Root returns the root command of the kubectl plugin, as people type it, without the roles that run as servers.
func (p Plugin) Root(typed string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   Name,
		Short: "Show and change a federation of Liqo clusters from its broker",
		Long: typed + " shows the provider clusters of a Liqo broker, its policies and the placements of its pods, checks the\n" +
			"installation, and enables, disables and drains providers. It needs a kubeconfig of the broker's cluster.",
		Example: strings.ReplaceAll("  # Check the installation\n  {} check\n\n  # Show who runs where\n  {} get placements -A\n\n"+
			"  # Show why\n  {} why -n shop-consumer1 web-0", placeholder, typed),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: typed},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          flags.NoArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	mark(cmd)
	cmd.AddCommand(p.Commands(typed)...)
	cmd.AddCommand(build.NewVersionCommand(p.Build))
	return cmd
}

// Error is an error of a command of the plugin.
type Error struct{ error }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.error }

// ErrorOf wraps an error of a command in an Error, if the command belongs to the plugin.
func ErrorOf(cmd *cobra.Command, err error) error {
	for ; cmd != nil; cmd = cmd.Parent() {
		if _, ok := cmd.Annotations[ofPlugin]; ok {
			return &Error{err}
		}
	}
	return err
}

// Lines returns the text of an error of a command of the plugin, as kubectl prints it; nil for another error.
func Lines(err error) []string {
	var failed *Error
	if !errors.As(err, &failed) {
		return nil
	}
	return kubectl.Words(failed.error)
}

// inSession returns a function that opens a session and runs a command in it.
func (p Plugin) inSession(c *Connection, do func(context.Context, *kubectl.Session, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.Open(c, cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, args)
	}
}
