package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

// PreviewDrain prints where the pods of providers would go if these were drained now. It changes nothing.
func (s *Session) PreviewDrain(ctx context.Context, node string, providers []string, output string) error {
	departures, err := explain.Drain(ctx, boundedReader{s}, node, providers, s.Now())
	if err != nil {
		return err
	}
	return s.printExplained(output, departures, func(out io.Writer) error { return printDepartures(out, departures) })
}

// boundedReader gives each request the deadline of the session.
type boundedReader struct{ *Session }

// Get implements client.Reader.
func (r boundedReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return r.get(ctx, key, into)
}

// List implements client.Reader.
func (r boundedReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return r.listPage(ctx, into, options)
}

// Review implements check.Client.
func (r boundedReader) Review(ctx context.Context, review client.Object) error {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	return r.Client.Create(ctx, review)
}

func printDepartures(out io.Writer, departures []explain.Departure) error {
	count := map[explain.Outcome]int{}
	table := printers.GetNewTabWriter(out)
	if len(departures) > 0 {
		fmt.Fprintln(table, "POD\tFROM\tOUTCOME\tTO\tREASON")
	}
	for i := range departures {
		d := &departures[i]
		count[d.Outcome]++
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", d.Pod, d.From, d.Outcome, cmp.Or(d.To, none), d.Message)
	}
	fmt.Fprintf(table, "%d would move, %d would leave and wait, %d would stay with their volumes\n",
		count[explain.Moves], count[explain.Waits], count[explain.Stays])
	return table.Flush()
}

// PreviewOutputs returns the output formats of PreviewDrain.
func PreviewOutputs() []string { return []string{outputJSON, "table", outputYAML} }
