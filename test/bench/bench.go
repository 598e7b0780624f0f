package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// stepTimeout bounds every step of the comparison.
	stepTimeout = 5 * time.Minute
	// settle is how long a virtual kubelet is left alone after its start.
	settle = 15 * time.Second
)

// bench runs the comparison and holds what was measured, by image.
type bench struct {
	*sandbox.Sandbox
	options
	say     func(format string, args ...any)
	results map[string]*results
}

// results of one image, in the order measured.
type results struct {
	oneHop, twoHops               []float64 // ms
	burst, cpu                    []float64 // s
	memory                        []float64 // MB
	localRequests, remoteRequests []float64 // per pod
}

func (r *results) add(o *results) {
	r.oneHop, r.twoHops = append(r.oneHop, o.oneHop...), append(r.twoHops, o.twoHops...)
	r.burst, r.cpu, r.memory = append(r.burst, o.burst...), append(r.cpu, o.cpu...), append(r.memory, o.memory...)
	r.localRequests = append(r.localRequests, o.localRequests...)
	r.remoteRequests = append(r.remoteRequests, o.remoteRequests...)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

const (
	oneHop  = "one-hop"
	twoHops = "two-hops"
)

func (b *bench) run(ctx context.Context) error {
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	if err := broker.Offload(ctx, oneHop); err != nil {
		return err
	}
	if err := consumer.Offload(ctx, twoHops); err != nil {
		return err
	}
	if err := broker.Offload(ctx, consumer.RemoteNamespace(twoHops)); err != nil {
		return err
	}
	// The first turn of all finds empty API servers, which no later one does: it
	// is not counted.
	b.say("warming up")
	if err := b.turn(ctx, sandbox.ImageStock, &results{}); err != nil {
		return err
	}
	for round := range b.rounds {
		for _, image := range []string{sandbox.ImageStock, sandbox.ImageOurs} {
			b.say("round %d of %d: %s", round+1, b.rounds, image)
			var r results
			if err := b.turn(ctx, image, &r); err != nil {
				return fmt.Errorf("%s: %w", image, err)
			}
			for _, row := range b.rows() {
				b.say("  %8.4g %-2s %s", row.value(&r), row.unit, row.name)
			}
			if b.results[image] == nil {
				b.results[image] = &results{}
			}
			b.results[image].add(&r)
		}
	}
	return nil
}

// turn measures one image once.
func (b *bench) turn(ctx context.Context, image string, r *results) error {
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	for _, c := range []*sandbox.Cluster{consumer, broker} {
		if err := c.UseImage(ctx, image); err != nil {
			return err
		}
	}
	// What a virtual kubelet does at its start is not to be measured.
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	for _, hops := range []struct {
		cluster   *sandbox.Cluster
		namespace string
		into      *[]float64
	}{{broker, oneHop, &r.oneHop}, {consumer, twoHops, &r.twoHops}} {
		for i := range b.single + 1 {
			took, err := b.onePod(ctx, hops.cluster, hops.namespace, fmt.Sprintf("single-%d", i))
			if err != nil {
				return err
			}
			if i > 0 { // the first one warms caches up
				*hops.into = append(*hops.into, float64(took.Milliseconds()))
			}
		}
	}
	return b.burstOnce(ctx, r)
}

// onePod creates a pod, waits until it runs, and removes it.
func (b *bench) onePod(ctx context.Context, c *sandbox.Cluster, namespace, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	w, err := c.Kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	began := time.Now()
	if _, err := c.Kube.CoreV1().Pods(namespace).Create(ctx, newPod(namespace, name), metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	var took time.Duration
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case !ok:
			return 0, fmt.Errorf("watch: %v", e.Object)
		case e.Type == watch.Deleted:
			return took, nil
		case took == 0 && pod.Status.Phase == corev1.PodRunning:
			took = time.Since(began)
			if err := c.Kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return 0, err
			}
		}
	}
	return 0, errors.Join(fmt.Errorf("pod %s did not come and go", name), ctx.Err())
}

// burstOnce creates all pods at once and measures until all run.
func (b *bench) burstOnce(ctx context.Context, r *results) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	broker, provider := b.Cluster(sandbox.Broker), b.Cluster(sandbox.Provider(1))
	before, err := b.read(ctx)
	if err != nil {
		return err
	}

	began := time.Now()
	for i := range b.burst {
		if err := broker.Client.Create(ctx, newPod(oneHop, fmt.Sprintf("burst-%d", i))); err != nil {
			return err
		}
	}
	if err := b.waitPods(ctx, broker, oneHop, b.burst); err != nil {
		return err
	}
	r.burst = append(r.burst, time.Since(began).Seconds())

	after, err := b.read(ctx)
	if err != nil {
		return err
	}
	r.memory = append(r.memory, float64(after.kubelet.ResidentMemory)/1e6)
	r.cpu = append(r.cpu, (after.kubelet.CPU - before.kubelet.CPU).Seconds())
	r.localRequests = append(r.localRequests, (after.local-before.local)/float64(b.burst))
	r.remoteRequests = append(r.remoteRequests, (after.remote-before.remote)/float64(b.burst))

	if err := broker.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(oneHop)); err != nil {
		return err
	}
	if err := b.waitPods(ctx, broker, oneHop, 0); err != nil {
		return err
	}
	if err := b.waitPods(ctx, provider, broker.RemoteNamespace(oneHop), 0); err != nil {
		return err
	}
	// Events outlive their pods, and every virtual kubelet keeps those of its
	// namespaces: left alone, each turn would have more of them than the last.
	for _, c := range b.Clusters {
		for _, namespace := range []string{oneHop, broker.RemoteNamespace(oneHop)} {
			if err := c.Client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(namespace)); err != nil {
				return err
			}
		}
	}
	return nil
}

// counters are what is read before and after a burst.
type counters struct {
	kubelet sandbox.ProcessStatus
	// local and remote are the requests that the API servers have answered.
	local, remote float64
}

func (b *bench) read(ctx context.Context) (c counters, err error) {
	if c.kubelet, err = b.kubelet(); err != nil {
		return c, err
	}
	if c.local, err = requests(ctx, b.Cluster(sandbox.Broker)); err != nil {
		return c, err
	}
	c.remote, err = requests(ctx, b.Cluster(sandbox.Provider(1)))
	return c, err
}

// kubelet is the process that serves the broker's virtual node.
func (b *bench) kubelet() (sandbox.ProcessStatus, error) {
	status := b.Status()
	for i := range status.Processes {
		if p := &status.Processes[i]; p.Cluster == sandbox.Broker && strings.HasPrefix(p.Component, "vk-") {
			return *p, nil
		}
	}
	return sandbox.ProcessStatus{}, fmt.Errorf("no virtual kubelet runs in %s", sandbox.Broker)
}

// waitPods waits until exactly n pods exist in the namespace and all of them
// run. It counts with a watch: polling 500 pods would load the API
// server that is being measured.
func (b *bench) waitPods(ctx context.Context, c *sandbox.Cluster, namespace string, n int) error {
	list, err := c.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for i := range list.Items {
		running[list.Items[i].Name] = list.Items[i].Status.Phase == corev1.PodRunning
	}
	w, err := c.Kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for !complete(running, n) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods, want %d Running: %w", len(running), n, ctx.Err())
		case e, ok := <-w.ResultChan():
			if !ok {
				return errors.New("the watch of pods ended")
			}
			pod, isPod := e.Object.(*corev1.Pod)
			if !isPod {
				return fmt.Errorf("watch: %w", apierrors.FromObject(e.Object))
			}
			if e.Type == watch.Deleted {
				delete(running, pod.Name)
			} else {
				running[pod.Name] = pod.Status.Phase == corev1.PodRunning
			}
		}
	}
	return nil
}

func complete(running map[string]bool, n int) bool {
	if len(running) != n {
		return false
	}
	for _, ok := range running {
		if !ok {
			return false
		}
	}
	return true
}

func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
				}},
			}},
		},
	}
}
