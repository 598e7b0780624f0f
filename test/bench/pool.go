package main

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// failoverAfter is the broker's default (pkg/broker/config.go).
const failoverAfter = 60 * time.Second

// everywhere returns the namespaces, by cluster, that contain the pods of one hop.
func (b *bench) everywhere() map[*sandbox.Cluster]string {
	broker := b.Cluster(sandbox.Broker)
	namespaces := map[*sandbox.Cluster]string{broker: oneHop}
	for i := range 3 {
		namespaces[b.Cluster(sandbox.Provider(i+1))] = broker.RemoteNamespace(oneHop)
	}
	return namespaces
}

// nodes measures pods that are created at once in the broker's cluster: either the broker assigns them to providers, or
// kube-scheduler chooses among three nodes.
func (b *bench) nodes(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	broker := b.Cluster(sandbox.Broker)
	for _, n := range b.sizes.or(1000, 5000) {
		err := b.turns(ctx, b.useNodes, r, func(ctx context.Context, of side, r *report) error {
			ctx, cancel := context.WithTimeout(ctx, b.timeout)
			defer cancel()
			before, err := requests(ctx, broker)
			if err != nil {
				return err
			}
			took, err := timed(ctx, broker, oneHop, n, func(ctx context.Context) error { return createAll(ctx, broker, oneHop, n) })
			if err != nil {
				return err
			}
			after, err := requests(ctx, broker)
			if err != nil {
				return err
			}
			r.addTimes(of, fmt.Sprintf("%d pods, created to Ready", n), took, 1)
			b.addRequests(r, of, fmt.Sprintf("%d pods, requests a pod, broker's API server", n), before, after, n).ratioAtMost(1)
			return b.clear(ctx, b.everywhere(), broker)
		})
		if err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	return nil
}

// chain measures pods of a consumer.
func (b *bench) chain(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	namespaces := map[*sandbox.Cluster]string{consumer: twoHops, broker: consumer.RemoteNamespace(twoHops)}
	for i := range 3 {
		namespaces[b.Cluster(sandbox.Provider(i+1))] = broker.RemoteNamespace(namespaces[broker])
	}
	for _, n := range b.sizes.or(1000) {
		err := b.turns(ctx, b.useNodes, r, func(ctx context.Context, of side, r *report) error {
			ctx, cancel := context.WithTimeout(ctx, b.timeout)
			defer cancel()
			took, err := timed(ctx, consumer, twoHops, n, func(ctx context.Context) error { return createAll(ctx, consumer, twoHops, n) })
			if err != nil {
				return err
			}
			r.addTimes(of, fmt.Sprintf("%d pods, created to Ready", n), took, 0.8)
			return b.clear(ctx, namespaces, consumer)
		})
		if err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	return nil
}

// failover measures how long pods are unavailable after their provider's API server fails. With Liqo alone, the pods
// belong to a Deployment, and Kubernetes evicts them from the node after five minutes; the times are the last pod's.
func (b *bench) failover(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	for i, n := range b.sizes.or(500, 2000) {
		for _, of := range []side{stock, ours} {
			if i > 0 && of == stock {
				continue // It waits for five minutes, whatever the number.
			}
			if err := b.useNodes(ctx, of); err != nil {
				return err
			}
			if err := pause(ctx, settle); err != nil {
				return err
			}
			b.say("  %d pods: %s", n, of)
			if err := b.lose(ctx, of, r, n); err != nil {
				return fmt.Errorf("%s: %d pods: %w", of, n, err)
			}
		}
	}
	return nil
}

// lose starts n pods at the first provider, stops its API server, and waits until all of them are Ready elsewhere.
func (b *bench) lose(ctx context.Context, of side, r *report, n int) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	broker, lost := b.Cluster(sandbox.Broker), sandbox.Provider(1)
	if err := b.atFirst(ctx, of, n); err != nil {
		return err
	}
	server := lost + "/kube-apiserver"
	began := time.Now()
	if err := b.Kill(server); err != nil {
		return err
	}
	elsewhere := set{}
	err := follow(ctx, broker, oneHop, func(pod *corev1.Pod, gone bool) bool {
		at := pod.Spec.NodeName
		if of == ours {
			at = pod.Labels[v1alpha1.ProviderLabel]
		}
		elsewhere.put(pod.Name, !gone && pod.DeletionTimestamp == nil && isReady(pod) && at != "" && at != lost)
		return len(elsewhere) == n
	})
	if err != nil {
		return fmt.Errorf("%d of %d pods are Ready elsewhere: %w", len(elsewhere), n, err)
	}
	f := r.add(of, fmt.Sprintf("%d pods, API server lost to all Ready elsewhere", n), "s", time.Since(began).Seconds())
	switch n {
	case 500:
		f.atMost((failoverAfter + 10*time.Second).Seconds())
	case 2000:
		f.atMost((failoverAfter + 30*time.Second).Seconds())
	}
	if err := b.Restart(ctx, server); err != nil {
		return err
	}
	return b.withdraw(ctx)
}

// drain measures a drain of five applications; a tenth of each may be unavailable.
func (b *bench) drain(ctx context.Context, r *report) error {
	const applications = 5
	if err := b.offload(ctx); err != nil {
		return err
	}
	if err := b.useNodes(ctx, ours); err != nil {
		return err
	}
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec:       v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("10%"))},
	}
	if err := b.Cluster(sandbox.Broker).Client.Create(ctx, policy); err != nil {
		return err
	}
	for _, n := range b.sizes.or(500) {
		if err := b.drainOf(ctx, r, applications, n/applications); err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	return b.Cluster(sandbox.Broker).Client.Delete(ctx, policy)
}

func (b *bench) drainOf(ctx context.Context, r *report, applications, each int) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	broker, drained := b.Cluster(sandbox.Broker), sandbox.Provider(1)
	n := applications * each
	if err := b.cordonOthers(ctx, ours, true); err != nil {
		return err
	}
	_, err := timed(ctx, broker, oneHop, n, func(ctx context.Context) error {
		for i := range applications {
			d := newDeployment(fmt.Sprintf("app-%d", i), each)
			if _, err := broker.Kube.AppsV1().Deployments(oneHop).Create(ctx, d, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.cordonOthers(ctx, ours, false); err != nil {
		return err
	}
	began := time.Now()
	if err := b.patchProvider(ctx, drained, `{"spec":{"drain":true}}`); err != nil {
		return err
	}
	ready, elsewhere := map[string]set{}, set{}
	least := math.MaxInt
	err = follow(ctx, broker, oneHop, func(pod *corev1.Pod, gone bool) bool {
		app := pod.Labels["app"]
		if ready[app] == nil {
			ready[app] = set{}
		}
		is := !gone && isReady(pod)
		known := len(ready[app]) == each || least < math.MaxInt
		ready[app].put(pod.Name, is)
		elsewhere.put(pod.Name, is && pod.Labels[v1alpha1.ProviderLabel] != drained)
		if known {
			least = min(least, len(ready[app]))
		}
		return len(elsewhere) == n
	})
	if err != nil {
		return fmt.Errorf("%d of %d pods are Ready elsewhere: %w", len(elsewhere), n, err)
	}
	r.add(ours, fmt.Sprintf("%d pods, drained", n), "s", time.Since(began).Seconds())
	r.add(ours, fmt.Sprintf("%d applications of %d pods, least Ready of one", applications, each), "pods", float64(least)).
		atLeast(math.Floor(float64(each) * 0.9))
	if err := b.patchProvider(ctx, drained, `{"spec":{"drain":false}}`); err != nil {
		return err
	}
	return b.withdraw(ctx)
}

// atFirst runs n pods of a Deployment at the first provider.
func (b *bench) atFirst(ctx context.Context, of side, n int) error {
	if err := b.cordonOthers(ctx, of, true); err != nil {
		return err
	}
	broker := b.Cluster(sandbox.Broker)
	_, err := timed(ctx, broker, oneHop, n, func(ctx context.Context) error {
		_, err := broker.Kube.AppsV1().Deployments(oneHop).Create(ctx, newDeployment("app", n), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return b.cordonOthers(ctx, of, false)
}

// withdraw deletes all Deployments and waits until their pods are gone from all clusters.
func (b *bench) withdraw(ctx context.Context) error {
	broker := b.Cluster(sandbox.Broker)
	err := broker.Kube.AppsV1().Deployments(oneHop).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return b.clear(ctx, b.everywhere(), broker)
}

// cordonOthers cordons all providers but the first, or uncordons them.
func (b *bench) cordonOthers(ctx context.Context, of side, cordoned bool) error {
	for i := 2; i <= 3; i++ {
		name := sandbox.Provider(i)
		if of == ours {
			if err := b.patchProvider(ctx, name, fmt.Sprintf(`{"spec":{"cordoned":%t}}`, cordoned)); err != nil {
				return err
			}
			continue
		}
		body := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned)
		_, err := b.Cluster(sandbox.Broker).Kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(body),
			metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return pause(ctx, time.Second) // The broker and kube-scheduler watch for the change.
}

func (b *bench) patchProvider(ctx context.Context, name, body string) error {
	provider := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return b.Cluster(sandbox.Broker).Client.Patch(ctx, provider, client.RawPatch(types.MergePatchType, []byte(body)))
}
