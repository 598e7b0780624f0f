package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	oneHop  = "one-hop"
	twoHops = "two-hops"
	// singles is the number of pods that are created one at a time in each turn, for each number of hops.
	singles = 10
)

// pod measures pods that are created one at a time, and the resources that a virtual kubelet uses without pods.
func (b *bench) pod(ctx context.Context, r *report) error {
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	if err := b.offload(ctx); err != nil {
		return err
	}
	return b.turns(ctx, b.useImage, r, func(ctx context.Context, of side, r *report) error {
		idle, err := b.kubelet()
		if err != nil {
			return err
		}
		r.add(of, "memory of an idle virtual kubelet (RSS)", "MB", float64(idle.ResidentMemory)/1e6)
		for _, hops := range []struct {
			cluster         *sandbox.Cluster
			namespace, name string
		}{{broker, oneHop, "one hop"}, {consumer, twoHops, "two hops"}} {
			for i := range singles + 1 {
				took, err := b.onePod(ctx, hops.cluster, hops.namespace, fmt.Sprintf("single-%d", i))
				if err != nil {
					return err
				}
				if i > 0 { // The first pod warms up caches.
					r.add(of, "created to Ready, "+hops.name, "ms", took.Seconds()*1000).ratioAtMost(0.8)
				}
			}
		}
		return nil
	})
}

// onePod creates a pod, waits until it is Ready, and removes it.
func (b *bench) onePod(ctx context.Context, c *sandbox.Cluster, namespace, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	took, err := timed(ctx, c, namespace, 1, func(ctx context.Context) error {
		_, err := c.Kube.CoreV1().Pods(namespace).Create(ctx, newPod(namespace, name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return 0, err
	}
	err = c.Kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	return time.Duration(took[0] * float64(time.Second)), errors.Join(err, gone(ctx, c, namespace))
}

// offload offloads the namespaces of one hop and of two, unless they already are.
func (b *bench) offload(ctx context.Context) error {
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	if err := broker.Offload(ctx, oneHop); err != nil {
		return err
	}
	if err := consumer.Offload(ctx, twoHops); err != nil {
		return err
	}
	return broker.Offload(ctx, consumer.RemoteNamespace(twoHops))
}

// deployment measures one Deployment of many pods on one virtual node, as Liqo's own benchmark does
// (https://github.com/liqotech/liqo-benchmarks).
func (b *bench) deployment(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	for _, n := range b.sizes.or(10, 100, 1000, 10000) {
		err := b.turns(ctx, b.useImage, r, func(ctx context.Context, of side, r *report) error { return b.deploymentOf(ctx, of, r, n) })
		if err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	return nil
}

func (b *bench) deploymentOf(ctx context.Context, of side, r *report, n int) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	broker, provider := b.Cluster(sandbox.Broker), b.Cluster(sandbox.Provider(1))
	before, err := b.counters(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := timed(ctx, broker, oneHop, n, func(ctx context.Context) error {
		_, err := broker.Kube.AppsV1().Deployments(oneHop).Create(ctx, newDeployment("app", n), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	lasted := time.Since(began)
	after, err := b.counters(ctx)
	if err != nil {
		return err
	}
	pods := fmt.Sprintf("%d pods", n)
	r.addTimes(of, pods+", created to Ready", took, 0.8)
	memory := r.add(of, pods+", memory of the virtual kubelet (RSS)", "MB", float64(after.kubelet.ResidentMemory)/1e6)
	cpu := r.add(of, pods+", CPUs of the virtual kubelet", "", (after.kubelet.CPU-before.kubelet.CPU).Seconds()/lasted.Seconds())
	if n == 10000 { // The number that Liqo's maintainers state.
		memory.atMost(500)
		cpu.atMost(0.5)
	}
	b.addRequests(r, of, pods+", requests a pod, own API server", before.local, after.local, n)
	b.addRequests(r, of, pods+", requests a pod, provider's API server", before.remote, after.remote, n)
	if err := broker.Kube.AppsV1().Deployments(oneHop).Delete(ctx, "app", metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
	}); err != nil {
		return err
	}
	return b.clear(ctx, map[*sandbox.Cluster]string{broker: oneHop, provider: broker.RemoteNamespace(oneHop)}, broker)
}

func newDeployment(name string, n int) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
}

// counters are the values that are read before and after.
type counters struct {
	kubelet       sandbox.ProcessStatus
	local, remote counts
}

func (b *bench) counters(ctx context.Context) (c counters, err error) {
	if c.kubelet, err = b.kubelet(); err != nil {
		return c, err
	}
	if c.local, err = requests(ctx, b.Cluster(sandbox.Broker)); err != nil {
		return c, err
	}
	c.remote, err = requests(ctx, b.Cluster(sandbox.Provider(1)))
	return c, err
}

// kubelet returns the process that serves the virtual node of the first provider.
func (b *bench) kubelet() (sandbox.ProcessStatus, error) {
	status := b.Status()
	for i := range status.Processes {
		if p := &status.Processes[i]; p.Cluster == sandbox.Broker && strings.HasPrefix(p.Component, "vk-") {
			return *p, nil
		}
	}
	return sandbox.ProcessStatus{}, fmt.Errorf("no virtual kubelet runs in %s", sandbox.Broker)
}
