package kubectl

import (
	"context"
	"fmt"
	"io"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl/check"
)

// CheckOptions configures Check.
type CheckOptions struct {
	// Node is the name of the broker's node.
	Node string
	// Version is the version of this program, Liqo the version of Liqo that it was built with.
	Version, Liqo string
	Output        string
}

// Check prints whether the installation in the broker's cluster is complete. It returns an error if a check failed, and
// changes nothing.
func (s *Session) Check(ctx context.Context, o *CheckOptions) error {
	report, err := check.Run(ctx, &check.Config{
		Client: boundedReader{s}, Node: o.Node, Version: o.Version, Liqo: o.Liqo, Now: s.Now, Ahead: s.Ahead,
	})
	if err != nil {
		return err
	}
	if err := s.printExplained(o.Output, report, func(out io.Writer) error { return printReport(out, report) }); err != nil {
		return err
	}
	if failed := report.Count(check.Fail); failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(report.Checks))
	}
	return nil
}

// printReport prints a line for each check, and below it the command that mends a fault.
func printReport(out io.Writer, report *check.Report) error {
	table := printers.GetNewTabWriter(out)
	fmt.Fprintln(table, "STATE\tCHECK\tMESSAGE")
	for i := range report.Checks {
		c := &report.Checks[i]
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.State, c.Name, shown(c.Message))
		if c.Remedy != "" {
			fmt.Fprintf(table, "\t\t→ %s\n", shown(c.Remedy))
		}
	}
	fmt.Fprintf(table, "%d OK, %d WARN, %d FAIL\n", report.Count(check.OK), report.Count(check.Warn), report.Count(check.Fail))
	return table.Flush()
}

// CheckOutputs returns the output formats of Check.
func CheckOutputs() []string { return []string{outputJSON, "table", outputYAML} }
