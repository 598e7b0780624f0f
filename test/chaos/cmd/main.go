// Command chaos runs random histories in a federation of real clusters, and judges the broker as the histories in
// virtual time do (test/histories/judge).
//
//	go run ./chaos/cmd -seeds=0-9 -minutes=60              random histories, until one has passed that time
//	go run ./chaos/cmd -fault='provider hangs' -repeat=3   one fault by itself, and how long until everything runs again
//	go run ./chaos/cmd -fault=all                          each of them
//	go run ./chaos/cmd -short                              the history of the end-to-end suite
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/capacitorset/liqo-broker-vk/test/chaos"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	providers  = 3
	brokerNode = "liqo-broker"
)

// judgedTimes returns the times that brokerArgs gives the brokers.
func judgedTimes() judge.Times {
	t := chaos.Tolerance()
	t.ProbeInterval, t.ProbeTimeout, t.FailoverAfter, t.PendingTimeout = time.Second, time.Second, 20*time.Second, 30*time.Second
	return t
}

func brokerArgs() []string {
	t := judgedTimes()
	return []string{
		"--failover-after=" + t.FailoverAfter.String(), "--probe-interval=" + t.ProbeInterval.String(),
		"--probe-timeout=" + t.ProbeTimeout.String(),
		"--pending-timeout=" + t.PendingTimeout.String(), "--suspicion-window=20s", "--refusal-memory=20s", "--status-interval=1s",
		"--leader-election-lease-duration=12s", "--leader-election-renew-deadline=9s", "--leader-election-retry-period=1s",
	}
}

// options of a run.
type options struct {
	seeds   string
	minutes float64
	fault   string
	short   bool
	repeat  int
	takes   time.Duration
	output  string
	kubelet string
	name    string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.seeds, "seeds", "0-4", "the seeds of the first and the last history, as FIRST-LAST")
	flags.Float64Var(&o.minutes, "minutes", 0, "start no further history after this many minutes; 0 means no limit")
	flags.StringVar(&o.fault, "fault", "",
		"run these faults (separated by commas, or all) one at a time instead of histories with random faults")
	flags.BoolVar(&o.short, "short", false, "run the short history of the end-to-end suite")
	flags.IntVar(&o.repeat, "repeat", 3, "with -fault: how often each fault happens")
	flags.DurationVar(&o.takes, "takes", 30*time.Second, "with -fault: how long each fault lasts")
	flags.StringVar(&o.output, "output", "", "the file for the results, as JSON")
	flags.StringVar(&o.kubelet, "kubelet", "",
		"the binary of the broker's virtual kubelets, for example of another version; default this repository's")
	flags.StringVar(&o.name, "name", "chaos", "the name of the sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	klog.SetLogger(logr.Discard()) // Watches log errors while their API server is down.
	histories, err := o.histories()
	if err != nil {
		return err
	}
	s, err := sandbox.Up(ctx, sandbox.Options{
		Name: o.name, Consumers: 1, Providers: providers, BrokerNode: brokerNode, BrokerArgs: brokerArgs(),
		// Small enough for random histories to fill it.
		ProviderSlice: sandbox.Slice{CPU: "6", Memory: "32Gi", Pods: "200"},
		BrokerKubelet: o.kubelet,
		Progress:      func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	results, err := o.happen(ctx, s, histories, out)
	results.Print(out)
	if o.output != "" {
		text, marshalErr := json.MarshalIndent(results.Summary(), "", "  ")
		err = errors.Join(err, marshalErr, os.WriteFile(o.output, append(text, '\n'), 0o644))
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(out, "the logs are kept in", s.Dir())
		return errors.Join(err, s.Stop())
	}
	return errors.Join(err, s.Down())
}

// histories returns the histories that the options select.
func (o *options) histories() (all []*chaos.History, err error) {
	if o.short {
		return []*chaos.History{chaos.Short("chaos-short")}, nil
	}
	if o.fault == "" {
		var first, last uint64
		if n, _ := fmt.Sscanf(o.seeds, "%d-%d", &first, &last); n == 1 {
			last = first
		} else if n == 0 || last < first {
			return nil, fmt.Errorf("-seeds=%s: use two numbers, such as 0-4", o.seeds)
		}
		for seed := first; seed <= last; seed++ {
			all = append(all, chaos.Random(seed, providers))
		}
		return all, nil
	}
	known := chaos.Kinds()
	names := strings.Split(o.fault, ",")
	if o.fault == "all" {
		names = known
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-fault=%s: use all, or some of: %s", name, strings.Join(known, ","))
		}
		for n := range o.repeat {
			all = append(all, chaos.Single(fmt.Sprintf("chaos-%d", len(all)), name, sandbox.Provider(1+n%providers), o.takes))
		}
	}
	return all, nil
}

// happen runs histories one after the other. It returns an error if one broke a rule.
func (o *options) happen(
	ctx context.Context, s *sandbox.Sandbox, histories []*chaos.History, out io.Writer,
) (all chaos.Results, err error) {
	began := time.Now()
	federation := &chaos.Federation{Sandbox: s, Node: brokerNode, Times: judgedTimes()}
	for _, h := range histories {
		if ctx.Err() != nil || o.minutes > 0 && time.Since(began).Minutes() > o.minutes {
			break
		}
		result, err := federation.Happen(ctx, h, out)
		if result.Name != "" {
			all = append(all, result)
			fmt.Fprintln(out, result)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", h.Name, err)
		}
		if result.Violated() {
			return all, fmt.Errorf("%s has violations", h.Name)
		}
	}
	return all, ctx.Err()
}
