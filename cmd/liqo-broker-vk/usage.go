package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

// usageOptions are the flags of usage.
type usageOptions struct {
	file, from, to, consumer, output string
	by                               []string
	consumerGiven                    bool
}

func newUsageCommand() *cobra.Command {
	o := &usageOptions{}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show who used what at which provider, and its cost",
		Long: "usage reads the ledger of a broker (broker --ledger), also while the broker writes it.\n" +
			"It shows the resources that pods held, times hours, and their cost by the prices at the time. Times are in UTC.",
		Example: `  # This month, by consumer and provider
  liqo-broker-vk usage

  # November, each hour of each resource of each pod, with the columns of FOCUS
  liqo-broker-vk usage --from=2026-11-01 --to=2026-12-01 -o csv > november.csv

  # One consumer's days, as JSON
  liqo-broker-vk usage --consumer=consumer1 --by=day,workload -o json`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.consumerGiven = cmd.Flags().Changed("consumer")
			return o.run(cmd.Context(), cmd.OutOrStdout(), time.Now())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "ledger", "/var/lib/liqo-broker/ledger.db", "The file of the ledger")
	f.StringVar(&o.from, "from", "", "The first day, or time (RFC 3339); by default the first of this month")
	f.StringVar(&o.to, "to", "", "The day, or time, before which it ends; by default now")
	f.StringVar(&o.consumer, "consumer", "", "Only this consumer; empty for the pods of the broker's own cluster")
	f.StringSliceVar(&o.by, "by", []string{string(ledger.ByConsumer), string(ledger.ByProvider)},
		"The columns by which the table and JSON add up: "+columns())
	f.StringVarP(&o.output, "output", "o", "table", "table, json, or csv: FOCUS rows by hour, pod and resource")
	return cmd
}

// columns lists the values of --by.
func columns() string {
	var names []string
	for _, g := range ledger.Groups() {
		names = append(names, string(g))
	}
	return strings.Join(names, ", ")
}

// query returns the query of the flags, and the columns.
func (o *usageOptions) query(now time.Time) (*ledger.Query, []ledger.Group, error) {
	var f flags.Faults
	now = now.UTC()
	q := &ledger.Query{From: ledger.MonthOf(now), To: now, Step: 24 * time.Hour}
	for flag, into := range map[string]struct {
		text string
		to   *time.Time
	}{"--from": {o.from, &q.From}, "--to": {o.to, &q.To}} {
		if into.text == "" {
			continue
		}
		at, err := time.Parse(time.DateOnly, into.text)
		if err != nil {
			at, err = time.Parse(time.RFC3339, into.text)
		}
		f.When(err != nil, flag+"="+into.text, "use a day such as 2026-11-01, or a time such as 2026-11-01T12:00:00Z")
		*into.to = at
	}
	f.When(len(f) == 0 && !q.From.Before(q.To), "--from="+o.from+" --to="+o.to, "make --to later than --from")
	f.OneOf("--output", o.output, "table", "json", "csv")
	groups := make([]ledger.Group, len(o.by))
	for i, name := range o.by {
		groups[i] = ledger.Group(name)
		f.When(!slices.Contains(ledger.Groups(), groups[i]), "--by="+name,
			"use one or more of "+columns())
	}
	if o.consumerGiven {
		q.Consumer = &o.consumer
	}
	if o.output == "csv" {
		q.Step = time.Hour
	}
	return q, groups, f.Err()
}

func (o *usageOptions) run(ctx context.Context, out io.Writer, now time.Time) error {
	q, groups, err := o.query(now)
	if err != nil {
		return err
	}
	store, err := ledger.OpenReadOnly(ctx, o.file)
	if err != nil {
		return err
	}
	defer store.Close()
	if o.output == "csv" {
		rows, err := ledger.NewCSV(out)
		if err != nil {
			return err
		}
		if err := store.Charges(ctx, q, rows.Write); err != nil {
			return err
		}
		return rows.Close()
	}
	sum := ledger.NewSum(groups...)
	err = store.Charges(ctx, q, func(c *ledger.Charge) error {
		sum.Add(c)
		return nil
	})
	if err != nil {
		return err
	}
	if o.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{"from": q.From, "to": q.To, "by": groups, "rows": sum.Rows()})
	}
	return printUsage(out, groups, sum.Rows())
}

// printUsage writes a line for each row. Resources other than cpu and memory that were used have a column each.
func printUsage(out io.Writer, groups []ledger.Group, rows []*ledger.Row) error {
	extended := map[corev1.ResourceName]bool{}
	for _, r := range rows {
		for name := range r.Hours {
			extended[name] = name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods
		}
	}
	maps.DeleteFunc(extended, func(_ corev1.ResourceName, shown bool) bool { return !shown })
	names := append([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods},
		slices.Sorted(maps.Keys(extended))...)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := make([]string, 0, len(groups)+len(names)+1)
	for _, g := range groups {
		header = append(header, string(g))
	}
	header = append(header, "cpu-hours", "gib-hours", "pod-hours")
	for _, name := range names[3:] {
		header = append(header, string(name)+"-hours")
	}
	fmt.Fprintln(w, strings.ToUpper(strings.Join(append(header, "cost"), "\t")))
	for _, r := range rows {
		cells := slices.Clone(r.Key)
		for _, name := range names {
			cells = append(cells, fmt.Sprintf("%.2f", r.Hours[name]))
		}
		fmt.Fprintln(w, strings.Join(append(cells, costs(r)), "\t"))
	}
	return w.Flush()
}

// costs is the cost of a row in all currencies.
func costs(r *ledger.Row) string {
	var parts []string
	for _, currency := range slices.Sorted(maps.Keys(r.Cost)) {
		parts = append(parts, price.Amount{Value: r.Cost[currency], Currency: currency}.String())
	}
	if r.Unpriced > 0 {
		parts = append(parts, fmt.Sprintf("%.2f pod-hours without a price", r.Unpriced))
	}
	return strings.Join(parts, " + ")
}
