package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/simulate"
)

// The limits of the garbage collector for simulate: it makes much garbage, and has a small live heap.
const (
	simulateGCPercent = 400
	simulateMemory    = 400 << 20
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	output, file, node string
	fromCluster        bool
	// session opens a session with the broker's cluster.
	session func() (*kubectl.Session, error)
}

func newSimulateCommand(p plugin.Plugin) *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate SCENARIO...",
		Short: "Show how the broker would have placed the pods of a day",
		Long: "simulate runs the decisions of the broker on a virtual clock, against the arrivals, ends, failures and changes of a\n" +
			"scenario (a YAML file), and shows how long pods waited, where they ran and the cost. Several scenarios are compared side\n" +
			"by side. It needs no cluster; with --from-cluster it begins with the providers, policies and pods of one.",
		Example: `  # A day
  liqo-broker-vk simulate day.yaml

  # The same day with another policy, as a page with charts
  liqo-broker-vk simulate day.yaml other-policy.yaml -o html --output-file=comparison.html

  # From the present state of the broker's cluster
  liqo-broker-vk simulate --from-cluster tomorrow.yaml

  # Each pod, as CSV
  liqo-broker-vk simulate day.yaml -o csv > pods.csv`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "table", "table, json, csv: a line for each pod, or html: a page with charts")
	f.StringVar(&o.file, "output-file", "", "The file to write; by default the standard output")
	f.BoolVar(&o.fromCluster, "from-cluster", false,
		"Begin with the providers, policies and pods of the broker's cluster, unless a scenario sets its own providers and policies")
	flags.InstallBrokerNode(f, &o.node)
	o.session = p.Session(cmd)
	return cmd
}

// settings are the defaults of the broker's flags.
func settings() simulate.Options {
	broker := newBrokerOptions()
	return simulate.Options{
		State: state.Config{
			MovesAtOnce: broker.movesAtOnce, SuspicionWindow: broker.times.SuspicionWindow, SuspicionLimit: broker.times.SuspicionLimit,
			ProbeInterval: broker.times.ProbeInterval, ReserveAfter: broker.times.ReserveAfter,
		},
		Rules: placement.Rules{
			Failover: v1alpha1.FailoverMove, FailoverAfter: broker.times.FailoverAfter, PendingTimeout: broker.times.PendingTimeout,
		},
		ProbeTimeout: broker.times.ProbeTimeout,
	}
}

func (o *simulateOptions) run(ctx context.Context, files []string, out, progress io.Writer) error {
	var f flags.Faults
	f.OneOf("--output", o.output, "table", "json", "csv", "html")
	if err := f.Err(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(simulateGCPercent))
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(simulateMemory))
	}
	base, err := o.base(ctx)
	if err != nil {
		return err
	}
	scenarios := make([]*simulate.Scenario, len(files))
	for i, file := range files {
		if scenarios[i], err = simulate.Load(file, base); err != nil {
			return err
		}
	}
	reports := make([]*simulate.Report, len(scenarios))
	for i, sc := range scenarios {
		opts := settings()
		opts.Progress = progressOf(progress, sc.Name, time.Now)
		if reports[i], err = simulate.Run(ctx, sc, opts); err != nil {
			return err
		}
	}
	return o.write(simulate.Compare(reports...), out)
}

// base reads the state with which the scenarios begin; nil without --from-cluster.
func (o *simulateOptions) base(ctx context.Context) (*simulate.Scenario, error) {
	if !o.fromCluster {
		return nil, nil // A scenario needs no cluster.
	}
	s, err := o.session()
	if err != nil {
		return nil, err
	}
	if s.RequestTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.RequestTimeout)
		defer cancel()
	}
	return simulate.FromCluster(ctx, s.Client, o.node, s.Now())
}

// write writes a comparison to the file or to out.
func (o *simulateOptions) write(c *simulate.Comparison, out io.Writer) error {
	to := map[string]func(io.Writer) error{
		"table": c.WriteTable, "json": c.WriteJSON, "csv": c.WriteCSV, "html": c.WriteHTML,
	}[o.output]
	if o.file == "" {
		return to(out)
	}
	file, err := os.Create(o.file)
	if err != nil {
		return err
	}
	if err := to(file); err != nil {
		_ = file.Close()
		return fmt.Errorf("%s: %w", o.file, err)
	}
	return file.Close()
}

// progressInterval is after how long a run is said to be under way, and how often.
const progressInterval = 5 * time.Second

// progressOf returns a simulate.Options.Progress that writes a line now and then.
func progressOf(out io.Writer, name string, now func() time.Time) func(float64) {
	last := now()
	return func(done float64) {
		if at := now(); at.Sub(last) >= progressInterval {
			last = at
			fmt.Fprintf(out, "%s: %.0f%%\n", name, 100*done)
		}
	}
}
