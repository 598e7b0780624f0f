package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// node is the node that the pods are bound to; nothing runs there.
	node = "load"
	// consumers is the number of consumers, each with a namespace.
	consumers = 20
	// writers is the number of concurrent writes.
	writers = 16
)

func providerName(i int) string { return fmt.Sprintf("provider-%04d", i) }

func consumerName(i int) string { return fmt.Sprintf("consumer-%02d", i%consumers) }

func podName(i int) string { return fmt.Sprintf("web-%05d", i) }

// populate creates the objects that the catalog shows, as the broker would write them.
func (l *load) populate(ctx context.Context) error {
	objects := []client.Object{&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{Unschedulable: true},
	}}
	for i := range consumers {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: consumerName(i), Labels: map[string]string{consts.RemoteClusterID: consumerName(i)},
			Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + consumerName(i)},
		}})
	}
	for _, o := range objects {
		if err := l.cluster.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range l.providers {
		group.Go(func() error { return l.provider(ctx, i) })
	}
	for i := range l.placements {
		group.Go(func() error { return l.placement(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	l.say("%d providers and %d pods made in %.0f s", l.providers, l.placements, time.Since(began).Seconds())
	return nil
}

func (l *load) provider(ctx context.Context, i int) error {
	name := providerName(i)
	provider := &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProviderClusterSpec{
			Enabled:    ptr.To(true),
			Attributes: map[string]string{"price": fmt.Sprintf("0.0%d", i%90+10), "region": fmt.Sprintf("region-%d", i%7)},
		},
	}
	if err := l.cluster.Client.Create(ctx, provider); err != nil {
		return fmt.Errorf("provider %s: %w", name, err)
	}
	provider.Status = providerStatus(name, 0)
	return l.cluster.Client.Status().Update(ctx, provider)
}

// providerStatus returns the status of a provider; it depends on turn.
func providerStatus(name string, turn int) v1alpha1.ProviderClusterStatus {
	amounts := func(cpu int64) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(cpu, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(cpu<<32, resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(10*cpu, resource.DecimalSI),
		}
	}
	resources := v1alpha1.Resources{Granted: amounts(64), Assigned: amounts(10), Free: amounts(54)}
	now := metav1.Now()
	var conditions []metav1.Condition
	for _, kind := range []string{
		v1alpha1.ProviderReady, v1alpha1.ProviderReachable, v1alpha1.ProviderKubeletReady, v1alpha1.ProviderClean,
	} {
		conditions = append(conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "AsItShouldBe", Message: "as it should be", LastTransitionTime: now,
		})
	}
	return v1alpha1.ProviderClusterStatus{
		Conditions: conditions, Resources: resources, Pods: 10,
		VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: name, Ready: true, Resources: resources, Pods: 10}},
		KPIs: v1alpha1.KPIs{
			Uptime: v1alpha1.Uptime{
				LastHour: "1", LastDay: "0.9987", LastWeek: "0.9991", LastMonth: "0.9990", Since: &now, Until: &now,
			},
			LatencyMilliseconds: ptr.To(int64(10 + turn%49)), PodStart: &v1alpha1.PodStart{P50Milliseconds: 2100, P90Milliseconds: 3900},
			Started: 100, Failed: 1,
		},
	}
}

func (l *load) placement(ctx context.Context, i int) error {
	provider := providerName(i % l.providers)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: consumerName(i), Name: podName(i),
			Labels: map[string]string{"app": "web", v1alpha1.VirtualNodeLabel: provider, v1alpha1.ProviderLabel: provider},
			Annotations: map[string]string{
				v1alpha1.DecisionAnnotation:   "84: price 29, spread 29, free 26",
				v1alpha1.AssignedAtAnnotation: time.Now().UTC().Format(time.RFC3339),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			Containers: []corev1.Container{{Name: "web", Image: "web", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			}}},
		},
	}
	if err := l.cluster.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	return l.cluster.Client.Status().Update(ctx, pod)
}

// change changes a provider and a pod alternately, several times a second until ctx ends, so that the shown data always
// changes.
func (l *load) change(ctx context.Context) error {
	tick := time.NewTicker(time.Second / time.Duration(l.changes))
	defer tick.Stop()
	for turn := 1; ; turn++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := l.changeOne(ctx, turn)
		if ctx.Err() != nil {
			return nil // The load is over.
		}
		if err != nil {
			return err
		}
	}
}

// changed returns the name of the object that a turn changes.
func (l *load) changed(turn int) string {
	if turn%2 == 0 {
		return providerName(turn * 37 / 2 % l.providers)
	}
	return podName(turn * 37 % l.placements)
}

func (l *load) changeOne(ctx context.Context, turn int) error {
	if turn%2 == 0 {
		name := l.changed(turn)
		var provider v1alpha1.ProviderCluster
		if err := l.cluster.Client.Get(ctx, client.ObjectKey{Name: name}, &provider); err != nil {
			return err
		}
		provider.Status = providerStatus(name, turn)
		return l.cluster.Client.Status().Update(ctx, &provider)
	}
	i := turn * 37 % l.placements
	to := providerName((i + turn) % l.providers)
	moved := fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:%q}}}`, v1alpha1.VirtualNodeLabel, to, v1alpha1.ProviderLabel, to)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: consumerName(i), Name: podName(i)}}
	return l.cluster.Client.Patch(ctx, pod, client.RawPatch("application/merge-patch+json", []byte(moved)))
}
