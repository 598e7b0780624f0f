package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/test/collector"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// maxPods is the pod capacity of the simulated nodes of one provider.
	maxPods = 20000
	// podsOfNode is the pod capacity of one simulated node.
	podsOfNode = 2000
	// settle is the pause after a change of sides, so that the start of a process is not measured.
	settle = 15 * time.Second
	// latency is used by the parts that have one.
	latency = 100 * time.Millisecond
	// poolNode is the broker's node.
	poolNode = "liqo-broker"
)

// part is one part of the measurements.
type part struct {
	name, about string
	federation  federation
	measure     func(*bench, context.Context, *report) error
}

// federation is the kind of federation that a part needs. Consecutive parts that need the same one share it.
type federation int

const (
	none federation = iota
	// pair is one provider, with the virtual kubelets of either side.
	pair
	// distant is a pair with latency between the clusters.
	distant
	// pool is three providers behind the broker's node, or behind three nodes with Liqo's own virtual kubelets.
	pool
	// lone is the broker with one provider.
	lone
	// networked is a pool with Liqo's networking and the remote IPAM.
	networked
	// traced is a pool whose processes send traces.
	traced
)

var parts = []part{
	{"pod", "one pod at a time, over one hop and two", pair, (*bench).pod},
	{"deployment", "a Deployment of 10 to 10,000 pods on one virtual node", pair, (*bench).deployment},
	{"latency", "the same with 100 ms between the clusters", distant, (*bench).deployment},
	{"nodes", "1,000 and 5,000 pods at once: one node for three providers, and three virtual nodes of Liqo", pool, (*bench).nodes},
	{"chain", "1,000 pods of a consumer through the broker, and through two hops of Liqo", pool, (*bench).chain},
	{"steps", "how long each step of the start of one pod takes, over two hops", traced, (*bench).steps},
	{"addresses", "how long running pods of a consumer wait for an address in its cluster", networked, (*bench).addresses},
	{"failover", "a provider of 500 and of 2,000 pods is lost", pool, (*bench).failover},
	{"drain", "a provider of 500 pods is drained", pool, (*bench).drain},
	{
		"broker", "the broker by itself: 100 providers, 10,000 pods and then 20,000, 50 of which start and end a second", lone,
		(*bench).broker,
	},
	{
		"decisions", "how fast the scheduler decides", none,
		command("go", "test", "-C", "..", "-run=^$", "-bench=.", "-benchtime=2s", "./pkg/scheduler/"),
	},
	{
		"answers", "how fast the catalog answers one request", none,
		command("go", "test", "-C", "..", "-run=^$", "-bench=Load", "-benchtime=6000x", "./pkg/catalog/"),
	},
	{
		"catalog", "the catalog of 1,000 providers and 10,000 pods under load, and with 1,000 streams", none,
		command("go", "run", "./load", "-streams=1000"),
	},
}

// bench is a run.
type bench struct {
	options
	say func(format string, args ...any)

	*sandbox.Sandbox
	is    federation
	warm  bool
	spans *collector.Collector
}

// run measures one part after the other. If a part fails, run reports it and continues.
func (b *bench) run(ctx context.Context, chosen []part, out io.Writer) error {
	result := newResult(b.file)
	var failed []string
	for _, p := range chosen {
		r := &report{Name: p.name}
		result.Parts = append(result.Parts, r)
		b.say("%s: %s", p.name, p.about)
		began := time.Now()
		err := b.need(ctx, p.federation)
		if err == nil {
			err = p.measure(b, ctx, r)
		}
		r.Seconds = time.Since(began).Seconds()
		if err != nil {
			r.Error = err.Error()
			failed = append(failed, p.name)
			// A federation after a failure is not reused for measurements.
			_ = b.end()
		}
		r.judge()
		if err := errors.Join(r.print(out), result.write()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(out, "\nThe tables show medians. All values are in %s.\n", b.file)
	if err := b.end(); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// need starts the federation that a part needs, and ends any other.
func (b *bench) need(ctx context.Context, f federation) error {
	if f == b.is {
		return nil
	}
	if err := b.end(); err != nil || f == none {
		return err
	}
	many := sandbox.Slice{CPU: "60", Memory: "240Gi", Pods: strconv.Itoa(maxPods)}
	options := sandbox.Options{
		Name: "bench", Consumers: 1, Providers: 1, Image: sandbox.ImageStock, ProviderSlice: many, ConsumerSlice: many, Progress: b.say,
	}
	switch f {
	case distant:
		options.Latency = latency
	case pool, traced:
		options.Providers, options.BrokerNode, options.Image = 3, poolNode, sandbox.ImageOurs
	case networked:
		options.Providers, options.BrokerNode, options.Image = 3, poolNode, sandbox.ImageOurs
		options.Networking, options.RemoteIPAM = true, true
	case lone:
		options.BrokerNode, options.Image = poolNode, sandbox.ImageOurs
	}
	if f == traced {
		spans, err := collector.Start()
		if err != nil {
			return err
		}
		b.spans = spans
		args := []string{"--tracing-endpoint=" + spans.Endpoint(), "--tracing-insecure=true"}
		options.BrokerArgs, options.BrokerKubeletArgs = args, args
	}
	s, err := sandbox.Up(ctx, options)
	if err != nil {
		return err
	}
	b.Sandbox, b.is = s, f
	for i := range options.Providers {
		provider := s.Cluster(sandbox.Provider(i + 1))
		for j := range maxPods/podsOfNode/options.Providers + 1 {
			if err := provider.AddNode(ctx, fmt.Sprintf("bench-%d", j), corev1.ResourceList{}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) end() error {
	var errs []error
	if b.is != none {
		errs = append(errs, b.Down())
	}
	if b.spans != nil {
		errs = append(errs, b.spans.Close())
	}
	b.Sandbox, b.spans, b.is, b.warm = nil, nil, none, false
	return errors.Join(errs...)
}

// turns measures both sides alternately, for as many rounds as the run has. The first turn of a federation is not
// counted: its API servers are still empty, unlike in all later turns.
func (b *bench) turns(
	ctx context.Context, use func(context.Context, side) error, r *report, turn func(context.Context, side, *report) error,
) error {
	one := func(of side, into *report) error {
		if err := use(ctx, of); err != nil {
			return fmt.Errorf("change to %s: %w", of, err)
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		if err := turn(ctx, of, into); err != nil {
			return fmt.Errorf("%s: %w", of, err)
		}
		return nil
	}
	if !b.warm {
		b.say("  before the first round: %s", stock)
		if err := one(stock, &report{}); err != nil {
			return err
		}
		b.warm = true
	}
	for round := range b.rounds {
		for _, of := range []side{stock, ours} {
			b.say("  round %d of %d: %s", round+1, b.rounds, of)
			if err := one(of, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// useImage switches the virtual kubelets of a pair to the image of a side.
func (b *bench) useImage(ctx context.Context, of side) error {
	image := sandbox.ImageOurs
	if of == stock {
		image = sandbox.ImageStock
	}
	for _, name := range []string{sandbox.Consumer(1), sandbox.Broker} {
		if err := b.Cluster(name).UseImage(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// useNodes switches a pool to the nodes of a side: the broker's node, or one node for each provider.
func (b *bench) useNodes(ctx context.Context, of side) error {
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	image, use := sandbox.ImageOurs, broker.UseBroker
	if of == stock {
		image, use = sandbox.ImageStock, broker.UseStockNodes
	}
	if err := use(ctx); err != nil {
		return err
	}
	return consumer.UseImage(ctx, image)
}
