package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	namespace = "demo"
	replicas  = 12
	added     = 3
	// failoverAfter is the failover delay in the story's policy.
	failoverAfter = 15 * time.Second
	// deadline bounds each step of the story.
	deadline = 2 * time.Minute
)

// role describes one provider of the story.
type role struct{ name, cpu, region, price string }

func cast() []role {
	return []role{
		{sandbox.Provider(1), "4", "eu-west", "0.031"},
		{sandbox.Provider(2), "8", "eu-north", "0.045"},
		{sandbox.Provider(3), "16", "us-east", "0.052"},
	}
}

func slices() map[string]sandbox.Slice {
	out := map[string]sandbox.Slice{}
	for _, r := range cast() {
		out[r.name] = sandbox.Slice{CPU: r.cpu, Memory: "64Gi", Pods: "600"}
	}
	return out
}

// story is the demonstration. It prints data of the clusters' APIs.
type story struct {
	*sandbox.Sandbox
	out              io.Writer
	consumer, broker *sandbox.Cluster
	// atBroker is the name of the namespace in the broker's cluster.
	atBroker string
}

func newStory(s *sandbox.Sandbox, out io.Writer) *story {
	consumer := s.Cluster(sandbox.Consumer(1))
	return &story{
		Sandbox: s, out: out, consumer: consumer, broker: s.Cluster(sandbox.Broker), atBroker: consumer.RemoteNamespace(namespace),
	}
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *story) run(ctx context.Context) error {
	for _, act := range []func(context.Context) error{s.prepare, s.place, s.explain, s.disable, s.kill} {
		if err := s.act(ctx, act); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) act(ctx context.Context, act func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return act(ctx)
}

// prepare sets the prices and regions of the providers, and the policy.
func (s *story) prepare(ctx context.Context) error {
	for _, r := range cast() {
		var pc v1alpha1.ProviderCluster
		if err := s.broker.Client.Get(ctx, client.ObjectKey{Name: r.name}, &pc); err != nil {
			return err
		}
		changed := pc.DeepCopy()
		changed.Spec.Attributes = map[string]string{"region": r.region, "price": r.price}
		if err := s.broker.Client.Patch(ctx, changed, client.MergeFrom(&pc)); err != nil {
			return err
		}
	}
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Spec: v1alpha1.PlacementPolicySpec{
			Weights: []v1alpha1.Weight{{Name: "price", Weight: 3}, {Name: "free", Weight: 2}, {Name: "spread", Weight: 2}},
			Failover: v1alpha1.Failover{
				Mode: v1alpha1.FailoverMove, After: &metav1.Duration{Duration: failoverAfter},
			},
		},
	}
	if err := s.broker.Client.Create(ctx, policy); err != nil {
		return err
	}
	if err := s.consumer.Offload(ctx, namespace); err != nil {
		return err
	}
	return s.broker.Offload(ctx, s.atBroker)
}

// place creates the pods in the consumer and shows to which providers they are assigned.
func (s *story) place(ctx context.Context) error {
	s.say("%s creates %d pods. The broker's policy has these weights: price 3, free capacity 2, spread 2.\n", s.consumer.Name, replicas)
	if err := s.consumer.Client.Create(ctx, deployment()); err != nil {
		return err
	}
	if err := s.waitRunning(ctx, replicas, ""); err != nil {
		return err
	}
	if err := s.printPods(ctx); err != nil {
		return err
	}
	return s.printProviders(ctx)
}

// explain shows how the broker rates every provider for one pod.
func (s *story) explain(ctx context.Context) error {
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	name := types.NamespacedName{Namespace: s.atBroker, Name: pods[0].Name}
	e, err := explain.Pod(ctx, s.broker.Client, brokerNode, name, time.Now())
	if err != nil {
		return err
	}
	s.say("\nWhy? liqo-broker-vk explain -n %s %s", name.Namespace, name.Name)
	return e.Print(s.out)
}

// disable disables the cheapest provider: its pods stay, new pods go elsewhere.
func (s *story) disable(ctx context.Context) error {
	out := cast()[0].name
	before, err := s.pods(ctx)
	if err != nil {
		return err
	}
	s.say("\n%s is disabled, and %s creates %d more pods: existing pods stay, new pods go to other providers.", out, s.consumer.Name, added)
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: out}}
	if err := s.broker.Client.Patch(ctx, pc, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"enabled":false}}`))); err != nil {
		return err
	}
	if err := s.scale(ctx, replicas+added); err != nil {
		return err
	}
	if err := s.waitRunning(ctx, replicas+added, ""); err != nil {
		return err
	}
	after, err := s.pods(ctx)
	if err != nil {
		return err
	}
	known := map[types.UID]bool{}
	for i := range before {
		known[before[i].UID] = true
	}
	for i := range after {
		if !known[after[i].UID] {
			s.say("  %s → %s", after[i].Name, after[i].Labels[v1alpha1.ProviderLabel])
		}
	}
	return nil
}

// kill kills a provider as a power failure does, and shows the moves as they happen.
func (s *story) kill(ctx context.Context) error {
	lost := cast()[1].name
	s.say("\n%s loses power. Its pods move to other providers after %s.", lost, failoverAfter)
	if err := s.Kill(lost); err != nil {
		return err
	}
	began := time.Now()
	where, err := s.places(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := s.places(ctx)
		if err != nil {
			return err
		}
		for pod, provider := range now {
			if before := where[pod]; before != provider && provider != "" {
				s.say("  %5.1f s  %s: %s → %s", time.Since(began).Seconds(), pod, before, provider)
				where[pod] = provider
			}
		}
		if err := s.running(ctx, replicas+added, lost); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pods are still at %s: %w", lost, ctx.Err())
		case <-tick.C:
		}
	}
	s.say("  %5.1f s  all %d pods run\n", time.Since(began).Seconds(), replicas+added)
	return s.printProviders(ctx)
}

// pods returns the story's pods in the broker's cluster.
func (s *story) pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := s.broker.Client.List(ctx, &list, client.InNamespace(s.atBroker))
	return list.Items, err
}

func (s *story) places(ctx context.Context) (map[string]string, error) {
	pods, err := s.pods(ctx)
	out := map[string]string{}
	for i := range pods {
		out[pods[i].Name] = pods[i].Labels[v1alpha1.ProviderLabel]
	}
	return out, err
}

// running returns nil once n pods are Ready in the consumer, and the given provider has none.
func (s *story) running(ctx context.Context, n int, notAt string) error {
	places, err := s.places(ctx)
	if err != nil {
		return err
	}
	var list corev1.PodList
	if err := s.consumer.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	ready := 0
	for i := range list.Items {
		at := places[list.Items[i].Name]
		if at != "" && at != notAt && podReady(&list.Items[i]) {
			ready++
		}
	}
	if ready < n {
		return fmt.Errorf("%d of %d pods run", ready, n)
	}
	return nil
}

func (s *story) waitRunning(ctx context.Context, n int, notAt string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.running(ctx, n, notAt)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-tick.C:
		}
	}
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (s *story) printPods(ctx context.Context) error {
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "POD\tNODE IN CONSUMER\tNODE IN BROKER\tRUNS AT\tDECISION")
	for i := range pods {
		p := &pods[i]
		_, decision, _ := strings.Cut(p.Annotations[v1alpha1.DecisionAnnotation], " ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Name, sandbox.Broker, p.Spec.NodeName, p.Labels[v1alpha1.ProviderLabel], decision)
	}
	return w.Flush()
}

func (s *story) printProviders(ctx context.Context) error {
	fmt.Fprintln(s.out)
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "PROVIDER\tREADY\tENABLED\tPODS\tCPU GRANTED\tREGION\tPRICE")
	places, err := s.places(ctx)
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, provider := range places {
		count[provider]++
	}
	for _, r := range cast() {
		var pc v1alpha1.ProviderCluster
		if err := s.broker.Client.Get(ctx, client.ObjectKey{Name: r.name}, &pc); err != nil {
			return err
		}
		ready := meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ProviderReady)
		cpu := pc.Status.Resources.Granted[corev1.ResourceCPU]
		fmt.Fprintf(w, "%s\t%v\t%v\t%d\t%s\t%s\t%s\n", r.name, ready, *pc.Spec.Enabled, count[r.name], cpu.String(), r.region, r.price)
	}
	return w.Flush()
}

func (s *story) scale(ctx context.Context, n int32) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	return s.consumer.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, patch))
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	n := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "nginx",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
					}},
				}}},
			},
		},
	}
}
