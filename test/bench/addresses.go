package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// addresses measures how long a consumer's pod runs until the consumer shows an address for it: Liqo maps the address
// in the broker's cluster, the remote IPAM returns it, and the consumer's virtual kubelet shows it.
func (b *bench) addresses(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	namespaces := map[*sandbox.Cluster]string{consumer: twoHops, broker: consumer.RemoteNamespace(twoHops)}
	for i := range 3 {
		namespaces[b.Cluster(sandbox.Provider(i+1))] = broker.RemoteNamespace(namespaces[broker])
	}
	for _, n := range b.sizes.or(1, 50) {
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
	running, shown := map[string]time.Time{}, map[string]time.Time{}
	var mapped map[string]time.Time
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := follow(ctx, consumer, twoHops, func(pod *corev1.Pod, gone bool) bool {
			if gone || pod.Status.Phase != corev1.PodRunning {
				return false
			}
			noteFirst(running, pod.Name)
			if pod.Status.PodIP != "" {
				noteFirst(shown, pod.Name)
			}
			return len(shown) == n
		})
		if err != nil {
			return fmt.Errorf("%d of %d pods run, %d have an address: %w", len(running), n, len(shown), err)
		}
		return nil
	})
	group.Go(func() (err error) {
		mapped, err = b.mapped(ctx, b.Cluster(sandbox.Broker), consumer.RemoteNamespace(twoHops), n)
		return err
	})
	group.Go(func() error { return createAll(ctx, consumer, twoHops, n) })
	if err := group.Wait(); err != nil {
		return err
	}
	var waited, byLiqo []float64
	for name, since := range running {
		if mapped[name].IsZero() {
			return fmt.Errorf("the address of %s is in its status but not mapped", name)
		}
		waited = append(waited, shown[name].Sub(since).Seconds())
		byLiqo = append(byLiqo, max(0, mapped[name].Sub(since).Seconds()))
	}
	slices.Sort(waited)
	slices.Sort(byLiqo)
	pods := fmt.Sprintf("%d at once, Running to", n)
	r.add(ours, pods+" mapped by Liqo in the broker's cluster, p50", "s", quantileOf(byLiqo, 0.5))
	r.add(ours, pods+" an address, p50", "s", quantileOf(waited, 0.5)).atMost(0.5)
	r.add(ours, pods+" mapped by Liqo in the broker's cluster, p90", "s", quantileOf(byLiqo, 0.9))
	r.add(ours, pods+" an address, p90", "s", quantileOf(waited, 0.9)).atMost(2)
	return nil
}

// mapped returns when Liqo had mapped the addresses of n more pods of a namespace, by name.
func (b *bench) mapped(ctx context.Context, broker *sandbox.Cluster, namespace string, n int) (map[string]time.Time, error) {
	at, before := map[string]time.Time{}, map[types.UID]bool{}
	for first := true; len(at) < n; first = false {
		var ips ipamv1alpha1.IPList
		if err := broker.Client.List(ctx, &ips, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("%d of %d addresses are mapped: %w", len(at), n, err)
		}
		for i := range ips.Items {
			switch ip := &ips.Items[i]; {
			case first:
				before[ip.UID] = true
			case ip.Status.IP != "" && !before[ip.UID]:
				noteFirst(at, ip.Name)
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// noteFirst records when a name was first seen.
func noteFirst(at map[string]time.Time, name string) {
	if at[name].IsZero() {
		at[name] = time.Now()
	}
}
