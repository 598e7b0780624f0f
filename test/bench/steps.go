package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/collector"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// way has the steps of a consumer's pod, each with the component that performs it and the moment that ends it.
var way = []struct{ step, until string }{
	{"created and bound (API server, kube-scheduler)", "bound at consumer"},
	{"forwarded to the broker's cluster (virtual kubelet, Liqo's controllers)", "there at broker"},
	{"bound there (kube-scheduler)", "bound at broker"},
	{"assigned to a provider (broker)", "assigned at broker"}, // Not with Liqo alone.
	{"forwarded to the provider (virtual kubelet, Liqo's controllers)", "there at provider"},
	{"bound there (kube-scheduler)", "bound at provider"},
	{"started (KWOK)", "Ready at provider"},
	{"Ready in the broker's cluster (virtual kubelet)", "Ready at broker"},
	{"Ready at the consumer (virtual kubelet)", "Ready at consumer"},
}

// moments has the times at which the pods of one turn were first seen in each state, by pod and state.
type moments struct {
	mu     sync.Mutex
	first  map[string]map[string]time.Time // Guarded by mu.
	traces map[string]string               // The traceparent of each pod. Guarded by mu.
	more   chan struct{}                   // Closed, and replaced, when there are more. Guarded by mu.
}

func newMoments() *moments {
	return &moments{first: map[string]map[string]time.Time{}, traces: map[string]string{}, more: make(chan struct{})}
}

// see records the states that a pod shows in the cluster of a role.
func (m *moments) see(role string, pod *corev1.Pod) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(pod.Name, "there at "+role, true, now)
	m.put(pod.Name, "bound at "+role, pod.Spec.NodeName != "", now)
	m.put(pod.Name, "assigned at "+role, role == sandbox.Broker && pod.Labels[v1alpha1.ProviderLabel] != "", now)
	m.put(pod.Name, "Ready at "+role, isReady(pod), now)
	if trace := pod.Annotations[v1alpha1.TraceparentAnnotation]; trace != "" && role == sandbox.Broker {
		m.traces[pod.Name] = trace
	}
	close(m.more)
	m.more = make(chan struct{})
}

func (m *moments) put(name, what string, is bool, now time.Time) {
	if m.first[name] == nil {
		m.first[name] = map[string]time.Time{}
	}
	if _, known := m.first[name][what]; is && !known {
		m.first[name][what] = now
	}
}

// wait returns the moments of a pod once it has reached the last one.
func (m *moments) wait(ctx context.Context, name string) (map[string]time.Time, error) {
	for {
		m.mu.Lock()
		of, more := m.first[name], m.more
		_, last := of[way[len(way)-1].until]
		m.mu.Unlock()
		if last {
			return of, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("pod %s: %w", name, ctx.Err())
		case <-more:
		}
	}
}

// steps measures the duration of each step of a consumer's pod, with watches on all clusters and with traces.
func (b *bench) steps(ctx context.Context, r *report) error {
	if err := b.offload(ctx); err != nil {
		return err
	}
	for _, s := range way { // In this order, even though not both sides have all steps.
		r.Figures = append(r.Figures, &figure{Name: s.step, Unit: "ms"})
	}
	return b.turns(ctx, b.useNodes, r, b.stepsOf)
}

func (b *bench) stepsOf(ctx context.Context, of side, r *report) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	consumer, broker := b.Cluster(sandbox.Consumer(1)), b.Cluster(sandbox.Broker)
	there := consumer.RemoteNamespace(twoHops)
	seen := newMoments()
	group, ctx := errgroup.WithContext(ctx)
	watched := func(role string, c *sandbox.Cluster, namespace string) {
		group.Go(func() error {
			return follow(ctx, c, namespace, func(pod *corev1.Pod, gone bool) bool {
				if !gone {
					seen.see(role, pod)
				}
				return false
			})
		})
	}
	watched("consumer", consumer, twoHops)
	watched(sandbox.Broker, broker, there)
	for i := range 3 {
		watched("provider", b.Cluster(sandbox.Provider(i+1)), broker.RemoteNamespace(there))
	}
	done := errors.New("all pods have been seen")
	group.Go(func() error {
		if err := b.followSingles(ctx, of, r, seen); err != nil {
			return err
		}
		return done // This ends the watches.
	})
	if err := group.Wait(); !errors.Is(err, done) {
		return err
	}
	return nil
}

// followSingles creates one pod after the other, and records how long each of its steps took.
func (b *bench) followSingles(ctx context.Context, of side, r *report, seen *moments) error {
	consumer := b.Cluster(sandbox.Consumer(1))
	pods := consumer.Kube.CoreV1().Pods(twoHops)
	for i := range singles + 1 {
		name := fmt.Sprintf("single-%d", i)
		before := time.Now()
		if _, err := pods.Create(ctx, newPod(twoHops, name), metav1.CreateOptions{}); err != nil {
			return err
		}
		at, err := seen.wait(ctx, name)
		if err != nil {
			return err
		}
		if i > 0 { // The first pod is created only so that all watches begin.
			began := before
			for _, s := range way {
				if until, is := at[s.until]; is {
					r.add(of, s.step, "ms", milliseconds(until.Sub(before)))
					before = until
				}
			}
			r.add(of, "all", "ms", milliseconds(before.Sub(began)))
		}
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := gone(ctx, consumer, twoHops); err != nil {
			return err
		}
	}
	if of == stock {
		return nil
	}
	return b.addSpans(ctx, r, seen)
}

// addSpans records the durations of spans that are parts of one step.
func (b *bench) addSpans(ctx context.Context, r *report, seen *moments) error {
	seen.mu.Lock()
	defer seen.mu.Unlock() // No pod is left that could change them.
	for _, traceparent := range seen.traces {
		if err := b.spans.Wait(ctx, collector.Way(traceparent)); err != nil {
			return err
		}
		for _, span := range b.spans.Spans() {
			if !strings.Contains(traceparent, span.Trace) || span.Failed {
				continue
			}
			switch span.Name {
			case "decide", "patch pod", "forward pod":
				r.add(ours, "of it the span "+span.Name, "ms", milliseconds(span.End.Sub(span.Start)))
			}
		}
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
