package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// brokered is a federation whose broker shows one node for all its providers.
type brokered struct {
	*sandbox.Sandbox
	consumer, broker *sandbox.Cluster
	providers        []*sandbox.Cluster
	// ledger is the broker's file; "" if it has none.
	ledger string
}

const (
	brokerNode = "liqo-broker"
	// failoverAfter is the broker's --failover-after here.
	failoverAfter = 20 * time.Second
	// ledgerInterval is the broker's --ledger-interval where it has a ledger.
	ledgerInterval = time.Second
)

// startBroker starts a federation with a broker that uses short times.
func startBroker(t *testing.T, opts sandbox.Options) *brokered {
	t.Helper()
	opts.BrokerNode = brokerNode
	opts.BrokerArgs = append(opts.BrokerArgs,
		"--failover-after="+failoverAfter.String(), "--probe-interval=1s", "--probe-timeout=1s",
		"--refusal-memory=20s", "--status-interval=1s",
		// Long enough for a leader to renew its lease while another federation boots on the same two cores.
		"--leader-election-lease-duration=12s", "--leader-election-renew-deadline=9s", "--leader-election-retry-period=1s")
	s := up(t, opts)
	auditAccounts(t, s)
	b := &brokered{Sandbox: s, consumer: s.Cluster(sandbox.Consumer(1)), broker: s.Cluster(sandbox.Broker)}
	for i := range opts.Providers {
		b.providers = append(b.providers, s.Cluster(sandbox.Provider(i+1)))
	}
	return b
}

// namespace creates a namespace in the broker's cluster that is offloaded to all providers, and empties it at the end
// of the test.
func (b *brokered) namespace(t *testing.T) string {
	t.Helper()
	parts := strings.Split(t.Name(), "/")
	name := strings.ToLower(strings.ReplaceAll(parts[len(parts)-1], "_", "-"))
	name = strings.Trim(name[:min(len(name), 30)], "-")
	require.NoError(t, b.broker.Offload(t.Context(), name))
	t.Cleanup(func() { b.remove(t, name) })
	return name
}

// remove deletes a namespace of the broker's cluster. It waits until no objects remain that a later scenario might see:
// pods in the broker's cluster, pods and ShadowPods at the providers.
func (b *brokered) remove(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, client.IgnoreNotFound(b.broker.Client.Delete(ctx, ns)))
	within(ctx, t, func(ctx context.Context) error { return b.settled(ctx, namespace, 0) })
}

// throughout calls check repeatedly during a period, and fails the test at the first error.
func throughout(t *testing.T, period time.Duration, check func(context.Context) error) {
	t.Helper()
	end := time.NewTimer(period)
	defer end.Stop()
	tick := time.NewTicker(5 * pollEvery)
	defer tick.Stop()
	for {
		require.NoError(t, check(t.Context()))
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

// policy creates a PlacementPolicy for the pods of a namespace and waits until the broker has read it. The policy is
// deleted at the end of the test.
func (b *brokered) policy(t *testing.T, namespace string, spec brokeringv1alpha1.PlacementPolicySpec) {
	t.Helper()
	spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	policy := &brokeringv1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: spec}
	require.NoError(t, b.broker.Client.Create(t.Context(), policy))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(b.broker.Client.Delete(context.Background(), policy)))
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error { return b.policyIs(ctx, policy.Name, metav1.ConditionTrue) })
}

func (b *brokered) policyIs(ctx context.Context, name string, valid metav1.ConditionStatus) error {
	var policy brokeringv1alpha1.PlacementPolicy
	if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
		return err
	}
	condition := meta.FindStatusCondition(policy.Status.Conditions, brokeringv1alpha1.PolicyValid)
	if condition == nil || condition.Status != valid || condition.ObservedGeneration != policy.Generation {
		return fmt.Errorf("PlacementPolicy %s, generation %d: condition %+v", name, policy.Generation, condition)
	}
	return nil
}

// decide changes the spec of a ProviderCluster, as administrators do, and waits until the broker has seen it.
func (b *brokered) decide(t *testing.T, provider string, change func(*brokeringv1alpha1.ProviderClusterSpec)) {
	t.Helper()
	key := client.ObjectKey{Name: provider}
	var pc brokeringv1alpha1.ProviderCluster
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		if err := b.broker.Client.Get(ctx, key, &pc); err != nil {
			return err
		}
		change(&pc.Spec)
		return b.broker.Client.Update(ctx, &pc)
	})
	wanted := pc.Generation
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := b.broker.Client.Get(ctx, key, &pc); err != nil {
			return err
		}
		if pc.Status.ObservedGeneration < wanted {
			return fmt.Errorf("the broker has seen generation %d of ProviderCluster %s, not %d", pc.Status.ObservedGeneration,
				provider, wanted)
		}
		return nil
	})
}

// restore resets the spec of a ProviderCluster at the end of the test.
func (b *brokered) restore(t *testing.T, provider string) {
	t.Cleanup(func() {
		pc := &brokeringv1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}}
		body := []byte(`{"spec":{"enabled":true,"cordoned":null,"drain":null,"attributes":null,"prices":null}}`)
		require.NoError(t, b.broker.Client.Patch(context.Background(), pc, client.RawPatch(types.MergePatchType, body)))
	})
}

// create creates pods in the broker's cluster, with the names name-0, name-1 and so on.
func (b *brokered) create(t *testing.T, namespace, name string, count int, adapt func(*corev1.Pod)) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(20)
	for i := range count {
		pod := newPod(namespace, fmt.Sprintf("%s-%d", name, i))
		pod.Labels["app"] = name
		if adapt != nil {
			adapt(pod)
		}
		group.Go(func() error { return b.broker.Client.Create(t.Context(), pod) })
	}
	require.NoError(t, group.Wait())
}

func only(provider string) func(*corev1.Pod) {
	return annotated(brokeringv1alpha1.FilterAnnotation, fmt.Sprintf("provider.id == '%s'", provider))
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = with(p.Annotations, key, value) }
}

// settled returns nil if a namespace has exactly n pods, all are Running and Ready, and each is only at the provider in
// its label: one pod, and one ShadowPod that was created by the virtual kubelet of its VirtualNode.
func (b *brokered) settled(ctx context.Context, namespace string, n int) error {
	if err := allRunning(ctx, b.broker, namespace, n); err != nil {
		return err
	}
	here, err := pods(ctx, b.broker, namespace)
	if err != nil {
		return err
	}
	want := map[string]string{}
	for i := range here {
		pod := &here[i]
		want[pod.Name] = pod.Labels[brokeringv1alpha1.ProviderLabel] + "/" + pod.Labels[brokeringv1alpha1.VirtualNodeLabel]
	}
	there, err := b.places(ctx, namespace)
	if err != nil {
		return err
	}
	for name, places := range there {
		if want[name] == "" || len(places) != 1 || places[0] != want[name] {
			return fmt.Errorf("pod %s is assigned to %q, there are ShadowPods at %v", name, want[name], places)
		}
	}
	if len(there) != n {
		return fmt.Errorf("%d pods have ShadowPods, want %d", len(there), n)
	}
	for _, provider := range b.providers {
		running, err := pods(ctx, provider, b.broker.RemoteNamespace(namespace))
		if err != nil {
			return err
		}
		for i := range running {
			if at, _, _ := strings.Cut(want[running[i].Name], "/"); at != provider.Name {
				return fmt.Errorf("pod %s is assigned to %q, and is at %s", running[i].Name, want[running[i].Name], provider.Name)
			}
		}
	}
	return nil
}

// places returns where each pod of a namespace has ShadowPods, as provider/VirtualNode.
func (b *brokered) places(ctx context.Context, namespace string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, provider := range b.providers {
		var list offloadingv1beta1.ShadowPodList
		if err := provider.Client.List(ctx, &list, client.InNamespace(b.broker.RemoteNamespace(namespace))); err != nil {
			return nil, err
		}
		for i := range list.Items {
			shadow := &list.Items[i]
			out[shadow.Name] = append(out[shadow.Name], provider.Name+"/"+shadow.Labels[forge.LiqoOriginClusterNodeName])
		}
	}
	return out, nil
}

func (b *brokered) settle(t *testing.T, namespace string, n int) {
	t.Helper()
	eventually(t, patient, func(ctx context.Context) error { return b.settled(ctx, namespace, n) })
}

// count returns how many pods of a namespace are assigned to each value of a label of the pods.
func (b *brokered) count(t *testing.T, namespace, label string) map[string]int {
	t.Helper()
	list, err := pods(t.Context(), b.broker, namespace)
	require.NoError(t, err)
	out := map[string]int{}
	for i := range list {
		out[list[i].Labels[label]]++
	}
	return out
}

// identities returns the properties that stay the same while a pod does not move: its UID, its assignment, and the UID
// of its ShadowPod.
func (b *brokered) identities(ctx context.Context, namespace string) (map[string]string, error) {
	list, err := pods(ctx, b.broker, namespace)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list {
		pod := &list[i]
		out[pod.Name] = fmt.Sprintf("%s at %s by %s", pod.UID, pod.Labels[brokeringv1alpha1.VirtualNodeLabel],
			pod.Annotations[brokeringv1alpha1.AssignedAtAnnotation])
	}
	for _, provider := range b.providers {
		var list offloadingv1beta1.ShadowPodList
		if err := provider.Client.List(ctx, &list, client.InNamespace(b.broker.RemoteNamespace(namespace))); err != nil {
			return nil, err
		}
		for i := range list.Items {
			shadow := &list.Items[i]
			out[shadow.Name] += fmt.Sprintf(", ShadowPod %s at %s", shadow.UID, provider.Name)
		}
	}
	return out, nil
}

// changed returns nil if all pods of before have the same identities in after.
func changed(before, after map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			return fmt.Errorf("%s was %s, is %s", name, before[name], after[name])
		}
	}
	return nil
}

// explained waits until a pod is unassigned and has the reason in its condition and in an event.
func (b *brokered) explained(t *testing.T, namespace, name, reason string, parts ...string) {
	t.Helper()
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return err
		}
		if at := pod.Labels[brokeringv1alpha1.VirtualNodeLabel]; at != "" {
			return fmt.Errorf("pod %s is assigned to %s: %s", name, at, pod.Annotations[brokeringv1alpha1.DecisionAnnotation])
		}
		condition := podCondition(&pod, brokeringv1alpha1.ConditionAssigned)
		if condition == nil || condition.Status != corev1.ConditionFalse || condition.Reason != reason ||
			!containsAll(condition.Message, parts) {
			return fmt.Errorf("pod %s on %q has the condition %+v", name, pod.Spec.NodeName, condition)
		}
		return b.event(ctx, &pod, "FailedAssignment", parts...)
	})
}

// event returns nil if the pod has an event with that reason whose message contains all parts.
func (b *brokered) event(ctx context.Context, pod *corev1.Pod, reason string, parts ...string) error {
	return event(ctx, b.broker, pod, reason, parts...)
}

func event(ctx context.Context, c *sandbox.Cluster, pod *corev1.Pod, reason string, parts ...string) error {
	var list corev1.EventList
	if err := c.Client.List(ctx, &list, client.InNamespace(pod.Namespace)); err != nil {
		return err
	}
	var messages []string
	for i := range list.Items {
		e := &list.Items[i]
		if e.InvolvedObject.UID != pod.UID || e.Reason != reason {
			continue
		}
		if containsAll(e.Message, parts) {
			return nil
		}
		messages = append(messages, e.Message)
	}
	return fmt.Errorf("pod %s has no event %s with %q, only %q", pod.Name, reason, parts, messages)
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}
