// Command chaos lets random histories happen to a federation of real clusters, and judges what the broker did as the histories in
// virtual time do (test/histories/judge).
//
//	go run ./chaos -seeds=0-9 -minutes=60              random histories, until one has passed that time
//	go run ./chaos -fault='provider hangs' -repeat=3   one fault by itself, and how long until everything runs again
//	go run ./chaos -fault=all                          each of them
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	providers  = 3
	brokerNode = "liqo-broker"
	// settleWithin is how long everything may take to settle after the last fault.
	settleWithin = 4 * time.Minute
	// stays is for how long it must stay so: a process that goes on may do what is late.
	stays = 15 * time.Second
	// millis is what each provider grants.
	millis = 6000
)

func granted() sandbox.Slice {
	return sandbox.Slice{CPU: fmt.Sprintf("%dm", millis), Memory: "32Gi", Pods: "200"}
}

// judgedTimes are those that the brokers get, in brokerArgs.
func judgedTimes() judge.Times {
	return judge.Times{
		ProbeInterval: time.Second, ProbeTimeout: time.Second, FailoverAfter: 20 * time.Second, PendingTimeout: 30 * time.Second,
		// A lease of 12 s, in which a leader may stand still.
		Noticed: 30 * time.Second, Flap: 8 * time.Second,
		// Liqo's controller makes a pod again from a cache that still has its ShadowPod (CreateOrUpdate in
		// shadowpod-ctrl/shadowpod_controller.go): 0.2 to 0.4 s were seen. Events of two API servers are seen at different times.
		Overlap: 2 * time.Second,
	}
}

func brokerArgs() []string {
	t := judgedTimes()
	return []string{
		"--failover-after=" + t.FailoverAfter.String(), "--probe-interval=" + t.ProbeInterval.String(), "--probe-timeout=" + t.ProbeTimeout.String(),
		"--pending-timeout=" + t.PendingTimeout.String(), "--suspicion-window=20s", "--refusal-memory=20s", "--status-interval=1s",
		"--leader-election-lease-duration=12s", "--leader-election-renew-deadline=9s", "--leader-election-retry-period=1s",
	}
}

// options of a run.
type options struct {
	seeds   string
	minutes float64
	fault   string
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
	flags.StringVar(&o.seeds, "seeds", "0-4", "the first and the last history")
	flags.Float64Var(&o.minutes, "minutes", 0, "no history begins after so many minutes; 0 is no limit")
	flags.StringVar(&o.fault, "fault", "", "this fault by itself, or all, one after the other")
	flags.IntVar(&o.repeat, "repeat", 3, "how often each fault happens by itself")
	flags.DurationVar(&o.takes, "takes", 30*time.Second, "how long each fault takes by itself")
	flags.StringVar(&o.output, "output", "", "a file for the results, as JSON")
	flags.StringVar(&o.kubelet, "kubelet", "", "the binary of the virtual kubelets, such as one of another version")
	flags.StringVar(&o.name, "name", "chaos", "the name of the sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	klog.SetLogger(logr.Discard()) // Watches of API servers that are away.
	histories, err := o.histories()
	if err != nil {
		return err
	}
	slices := map[string]sandbox.Slice{}
	for i := range providers {
		slices[sandbox.Provider(i+1)] = granted()
	}
	s, err := sandbox.Up(ctx, sandbox.Options{
		Name: o.name, Consumers: 1, Providers: providers, BrokerNode: brokerNode, ProviderSlices: slices, BrokerArgs: brokerArgs(),
		BrokerKubelet: o.kubelet,
		Progress:      func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	results, err := o.happen(ctx, s, histories, out)
	results.print(out)
	if o.output != "" {
		text, marshalErr := json.MarshalIndent(results, "", "  ")
		err = errors.Join(err, marshalErr, os.WriteFile(o.output, append(text, '\n'), 0o644))
	}
	if err != nil {
		fmt.Fprintln(out, "the logs are kept in", s.Dir())
		return errors.Join(err, s.Stop())
	}
	return s.Down()
}

// histories are those that the options ask for.
func (o *options) histories() (all []*history, err error) {
	if o.fault == "" {
		var first, last uint64
		if n, _ := fmt.Sscanf(o.seeds, "%d-%d", &first, &last); n == 1 {
			last = first
		} else if n == 0 || last < first {
			return nil, fmt.Errorf("-seeds=%s: use two numbers, such as 0-4", o.seeds)
		}
		for seed := first; seed <= last; seed++ {
			all = append(all, generate(seed))
		}
		return all, nil
	}
	names := []string{o.fault}
	if o.fault == "all" {
		names = slices.Sorted(maps.Keys(kinds()))
	}
	for _, name := range names {
		if _, known := kinds()[name]; !known {
			return nil, fmt.Errorf("-fault=%s: use all, or one of: %s", name, strings.Join(slices.Sorted(maps.Keys(kinds())), ", "))
		}
		for n := range o.repeat {
			h := directed(name, n, o.takes)
			h.name = fmt.Sprintf("chaos-%d", len(all))
			all = append(all, h)
		}
	}
	return all, nil
}

// happen lets histories happen, one after the other. It returns an error if one broke a rule.
func (o *options) happen(ctx context.Context, s *sandbox.Sandbox, histories []*history, out io.Writer) (all results, err error) {
	began := time.Now()
	for _, h := range histories {
		if ctx.Err() != nil || o.minutes > 0 && time.Since(began).Minutes() > o.minutes {
			break
		}
		result, err := h.run(ctx, s, out)
		if err != nil {
			return all, fmt.Errorf("%s: %w", h.name, err)
		}
		all = append(all, result)
		fmt.Fprintln(out, result)
		if len(result.Violations) > 0 {
			return all, fmt.Errorf("%s broke rules", h.name)
		}
	}
	return all, ctx.Err()
}

// run lets a history happen, and judges it.
func (h *history) run(ctx context.Context, s *sandbox.Sandbox, out io.Writer) (result, error) {
	home := s.Cluster(sandbox.Broker)
	if err := home.Offload(ctx, h.name); err != nil {
		return result{}, err
	}
	var at []*judge.Provider
	for i := range providers {
		at = append(at, &judge.Provider{ID: sandbox.Provider(i + 1), VirtualNode: sandbox.Provider(i + 1), Millis: millis})
	}
	recording, stop := context.WithCancel(ctx)
	defer stop()
	r := newRecorder(s, h.name, at)
	if err := r.start(recording); err != nil {
		return result{}, err
	}
	var kubelets errgroup.Group
	for _, p := range at {
		kubelets.Go(func() error { h.complete(recording, s.Cluster(p.ID), home.RemoteNamespace(h.name)); return nil })
	}
	began := time.Now()
	for _, o := range h.workloads() {
		if err := home.Client.Create(ctx, o); err != nil {
			return result{}, err
		}
	}
	var happening errgroup.Group
	happening.Go(func() error { return h.happen(ctx, s, r, began) })
	happening.Go(func() error { return h.comeAndGo(ctx, home) })
	if err := happening.Wait(); err != nil {
		return result{}, err
	}
	over := time.Now()
	well := over
	unsettled, last := "", ""
	for time.Since(over) < settleWithin && time.Since(well) < stays && ctx.Err() == nil {
		if unsettled = r.record(began).Unsettled(); unsettled != "" {
			last, well = unsettled, time.Now()
		}
		pause(ctx, 200*time.Millisecond)
	}
	record := r.record(began)
	result := result{
		Name: h.name, Faults: len(h.faults), Events: r.events, Gaps: r.gaps, Violations: record.Violations(),
		RecoverySeconds: well.Sub(over).Seconds(), Last: last, Pods: pods(record), h: h,
	}
	if len(h.faults) == 1 {
		result.Kind, result.AgainSeconds = h.faults[0].kind, again(record)
	}
	if unsettled != "" {
		result.Violations = append(result.Violations, "not settled: "+unsettled)
	}
	if len(result.Violations) > 0 {
		h.tell(record, result.Violations, out)
		return result, nil
	}
	stop()
	r.watching.Wait()
	_ = kubelets.Wait()
	return result, h.clear(ctx, s)
}

// tell prints the stories of the pods that violations name.
func (h *history) tell(record *judge.Record, violations []string, out io.Writer) {
	text, told := strings.Join(violations, "\n"), map[string]bool{}
	for i := range record.Home.Pods {
		name := record.Home.Pods[i].Object().GetName()
		if !told[name] && strings.Contains(text, name+" ") {
			told[name] = true
			fmt.Fprintf(out, "%s:\n%s", name, record.Story(name))
		}
	}
}

// pods counts those that there were in the broker's cluster.
func pods(record *judge.Record) int {
	all := map[string]bool{}
	for i := range record.Home.Pods {
		all[string(record.Home.Pods[i].Object().GetUID())] = true
	}
	return len(all)
}

// again is how long after the beginning of the fault all pods were Ready again, for good; 0 if none ever was not.
func again(record *judge.Record) float64 {
	from, last := record.Faults[0].From, time.Time{}
	notReady := map[string]bool{}
	for i := range record.Home.Pods {
		c := &record.Home.Pods[i]
		pod := c.Object().(*corev1.Pod)
		ready := c.After == nil || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if c.At.Before(from) {
			continue
		}
		if !ready {
			notReady[string(pod.UID)] = true
		} else if notReady[string(pod.UID)] {
			delete(notReady, string(pod.UID))
			last = c.At
		}
	}
	if last.IsZero() {
		return 0
	}
	return last.Sub(from).Seconds()
}
