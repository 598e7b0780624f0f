package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// addresses measures how long a pod of a consumer runs until it has an address there: Liqo maps it in the broker's cluster, the remote
// IPAM returns that, and the consumer's virtual kubelet shows it.
func (b *bench) addresses(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	namespaces := map[*sandbox.Cluster]string{consumer: twoHops, broker: consumer.RemoteNamespace(twoHops)}
	for i := range 3 {
		namespaces[b.Cluster(sandbox.Provider(i+1))] = broker.RemoteNamespace(namespaces[broker])
	}
	for _, n := range b.sizes.or(50) {
		for range b.rounds {
			if err := b.addressesOf(ctx, r, n); err != nil {
				return fmt.Errorf("%d pods: %w", n, err)
			}
			if err := b.clear(ctx, namespaces, consumer); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) addressesOf(ctx context.Context, r *report, n int) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	consumer := b.Cluster(sandbox.Consumer(1))
	running, took := map[string]time.Time{}, map[string]float64{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := follow(ctx, consumer, twoHops, func(pod *corev1.Pod, gone bool) bool {
			if gone || pod.Status.Phase != corev1.PodRunning {
				return false
			}
			since, is := running[pod.Name]
			if !is {
				since = time.Now()
				running[pod.Name] = since
			}
			if _, has := took[pod.Name]; !has && pod.Status.PodIP != "" {
				took[pod.Name] = time.Since(since).Seconds()
			}
			return len(took) == n
		})
		if err != nil {
			return fmt.Errorf("%d of %d pods run, %d have an address: %w", len(running), n, len(took), err)
		}
		return nil
	})
	group.Go(func() error { return createAll(ctx, consumer, twoHops, n) })
	if err := group.Wait(); err != nil {
		return err
	}
	var waited []float64
	for _, seconds := range took {
		waited = append(waited, seconds)
	}
	slices.Sort(waited)
	pods := fmt.Sprintf("%d pods, Running to an address", n)
	r.add(ours, pods+", p50", "s", quantileOf(waited, 0.5)).atMost(0.5)
	r.add(ours, pods+", p90", "s", quantileOf(waited, 0.9)).atMost(2)
	r.add(ours, pods+", last", "s", quantileOf(waited, 1))
	return nil
}
