// Command bench compares this repository's virtual kubelet with Liqo's own, in
// turn in one sandbox, and prints a table of medians and ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// options of a run.
type options struct {
	rounds, single, burst int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 2, "how often each binary has its turn")
	flags.IntVar(&o.single, "single", 10, "single pods a turn, for each number of hops")
	flags.IntVar(&o.burst, "burst", 500, "pods created at once, up to 600")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 || o.single < 1 || o.burst < 1 || o.burst > 600 {
		return fmt.Errorf("--rounds and --single must be at least 1, --burst 1 to 600")
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	s, err := sandbox.Up(ctx, sandbox.Options{Name: "bench", Consumers: 1, Providers: 1, Image: sandbox.ImageStock, Progress: say})
	if err != nil {
		return err
	}
	b := &bench{Sandbox: s, options: o, say: say, results: map[string]*results{}}
	err = b.run(ctx)
	if downErr := s.Down(); err == nil {
		err = downErr
	}
	if err != nil {
		return err
	}
	return b.print(stdout)
}

// row is one line of the table; value reads the median from the results.
type row struct {
	name  string
	unit  string
	value func(*results) float64
}

func (b *bench) rows() []row {
	return []row{
		{"one pod, created to Running, one hop", "ms", func(r *results) float64 { return median(r.oneHop) }},
		{"one pod, created to Running, two hops", "ms", func(r *results) float64 { return median(r.twoHops) }},
		{fmt.Sprintf("%d pods at once, all Running", b.burst), "s", func(r *results) float64 { return median(r.burst) }},
		{fmt.Sprintf("memory of the virtual kubelet at %d pods (RSS)", b.burst), "MB", func(r *results) float64 { return median(r.memory) }},
		{fmt.Sprintf("CPU of the virtual kubelet for %d pods", b.burst), "s", func(r *results) float64 { return median(r.cpu) }},
		{"API requests per pod, local API server", "", func(r *results) float64 { return median(r.localRequests) }},
		{"API requests per pod, remote API server", "", func(r *results) float64 { return median(r.remoteRequests) }},
	}
}

func (b *bench) print(out io.Writer) error {
	stock, ours := b.results[sandbox.ImageStock], b.results[sandbox.ImageOurs]
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "stock\tours\tours/stock\t\t")
	for _, r := range b.rows() {
		s, o := r.value(stock), r.value(ours)
		fmt.Fprintf(w, "%.4g %s\t%.4g %s\t%.2f\t%s\t\n", s, r.unit, o, r.unit, o/s, r.name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "medians of %d single pods and %d bursts each, in turn in one sandbox; API requests are those of all clients, without watches and leases\n",
		b.rounds*b.single, b.rounds)
	return err
}
