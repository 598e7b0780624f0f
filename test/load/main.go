// Command load measures the catalog under load: 1,000 providers and 10,000 placements on a real API server, which
// change continuously, and 200 requests a second for 30 s over HTTPS. It fails if the slowest percent exceeds its
// limit, or if the memory grows.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// options of a run.
type options struct {
	providers, placements int
	rate                  int
	duration              time.Duration
	changes               int
	p99                   time.Duration
	growth                float64
	// streams is the number of streams that are open in the end, and streamChanges the number of objects that change
	// each second then.
	streams, streamChanges int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.providers, "providers", 1000, "number of providers")
	flags.IntVar(&o.placements, "placements", 10000, "number of pods")
	flags.IntVar(&o.rate, "rate", 200, "requests a second")
	flags.DurationVar(&o.duration, "duration", 30*time.Second, "how long to send requests")
	flags.IntVar(&o.changes, "changes", 10, "object changes a second while requests are sent")
	flags.DurationVar(&o.p99, "p99", 20*time.Millisecond, "limit of the 99th percentile of the request latency")
	flags.Float64Var(&o.growth, "growth", 1.15, "limit of the memory growth of the catalog, as a factor")
	flags.IntVar(&o.streams, "streams", 0, "number of event streams to open and measure after the requests; 0 for none")
	flags.IntVar(&o.streamChanges, "stream-changes", 100, "object changes a second while streams are open")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.providers < 1 || o.placements < 1 || o.rate < 1 || o.changes < 1 || o.streams < 0 || o.streamChanges < 1 ||
		o.duration < time.Second {
		return fmt.Errorf("all numbers must be at least 1, --duration at least 1s")
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	s, err := sandbox.Up(ctx, sandbox.Options{
		Name: "load", Consumers: 1, Providers: 1, Progress: say,
		CatalogArgs: []string{
			"--broker-node=" + node, "--requests-per-second=10000", "--requests-burst=10000",
			"--streams-per-caller=10000", "--streams-in-all=10000",
		},
	})
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: insecure(), MaxIdleConnsPerHost: 32, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	l := &load{
		Sandbox: s, cluster: s.Cluster(sandbox.Broker), options: o, say: say,
		client: &http.Client{Transport: transport, Timeout: 10 * time.Second},
	}
	err = l.run(ctx, stdout)
	if downErr := s.Down(); err == nil {
		err = downErr
	}
	return err
}
