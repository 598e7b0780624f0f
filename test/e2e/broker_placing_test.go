package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// spread assigns 30 pods of one application to 3 providers, two of which are in one region.
func (b *brokered) spread(t *testing.T) {
	for i, region := range []string{"eu", "eu", "us"} {
		b.restore(t, sandbox.Provider(i+1))
		b.decide(t, sandbox.Provider(i+1),
			func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Attributes = map[string]string{"region": region} })
	}
	for key, want := range map[string]func(at map[string]int){
		"provider": func(at map[string]int) {
			assert.Equal(t, map[string]int{"provider1": 10, "provider2": 10, "provider3": 10}, at)
		},
		"region": func(at map[string]int) {
			assert.Equal(t, 15, at["provider1"]+at["provider2"], "%v", at)
			assert.Equal(t, 15, at["provider3"], "%v", at)
		},
	} {
		t.Run("over each "+key, func(t *testing.T) {
			ns := b.namespace(t)
			b.policy(t, ns, brokeringv1alpha1.PlacementPolicySpec{
				Weights: []brokeringv1alpha1.Weight{{Name: "spread", Weight: 1}},
				Spread:  &brokeringv1alpha1.Spread{TopologyKey: key},
			})
			require.NoError(t, b.broker.Client.Create(t.Context(), newDeployment(ns, "web", 30)))
			b.settle(t, ns, 30)
			want(b.count(t, ns, brokeringv1alpha1.ProviderLabel))
			list, err := pods(t.Context(), b.broker, ns)
			require.NoError(t, err)
			for i := range list {
				assert.Equal(t, brokerNode, list[i].Spec.NodeName)
				assert.Contains(t, list[i].Annotations[brokeringv1alpha1.DecisionAnnotation], "spread")
			}
			eventually(t, 20*time.Second, func(ctx context.Context) error {
				return b.event(ctx, &list[0], "Assigned",
					"Assigned to provider "+list[0].Labels[brokeringv1alpha1.ProviderLabel]+": score ", "; 2 others fit")
			})
		})
	}
}

// criterion tests the filter of a consumer whose pods go two hops.
func (b *brokered) criterion(t *testing.T) {
	for provider, region := range map[string]string{"provider1": "us", "provider2": "eu"} { // The third provider has no region.
		b.restore(t, provider)
		b.decide(t, provider, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Attributes = map[string]string{"region": region} })
	}
	const namespace = "criterion"
	require.NoError(t, b.consumer.Offload(t.Context(), namespace))
	atBroker := b.consumer.RemoteNamespace(namespace)
	require.NoError(t, b.broker.Offload(t.Context(), atBroker))
	for i := range 6 {
		pod := newPod(namespace, fmt.Sprintf("european-%d", i))
		annotated(brokeringv1alpha1.FilterAnnotation, "provider.attributes['region'] == 'eu'")(pod)
		require.NoError(t, b.consumer.Client.Create(t.Context(), pod))
	}
	eventually(t, patient, func(ctx context.Context) error { return allRunning(ctx, b.consumer, namespace, 6) })
	b.settle(t, atBroker, 6)
	assert.Equal(t, map[string]int{"provider2": 6}, b.count(t, atBroker, brokeringv1alpha1.ProviderLabel))

	// A filter applies until its owner removes it. Liqo leaves it on the broker's pod.
	pod := newPod(namespace, "anywhere")
	annotated(brokeringv1alpha1.FilterAnnotation, "false")(pod)
	require.NoError(t, b.consumer.Client.Create(t.Context(), pod))
	b.explained(t, atBroker, pod.Name, "NoProviderFits", "no provider cluster fits: pod filter")
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, brokeringv1alpha1.FilterAnnotation)
	require.NoError(t, b.consumer.Client.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(body))))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, atBroker, pod.Name, "") })

	require.NoError(t, b.consumer.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	b.settle(t, atBroker, 0)
}

// badCriteria tests invalid criteria of a pod and of a policy. Once they are fixed, the pods run.
func (b *brokered) badCriteria(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "typo", 1, annotated(brokeringv1alpha1.FilterAnnotation, "provider.attributes['region'] = 'eu'"))
	b.create(t, ns, "stranger", 1, annotated(brokeringv1alpha1.FilterAnnotation, "cluster.name == 'x'"))
	b.create(t, ns, "lost", 1, annotated(brokeringv1alpha1.PolicyAnnotation, "none-such"))
	b.create(t, ns, "picky", 1, annotated(brokeringv1alpha1.FilterAnnotation, "provider.id == 'mars'"))
	b.explained(t, ns, "typo-0", "InvalidCriteria", brokeringv1alpha1.FilterAnnotation, "Syntax error")
	b.explained(t, ns, "stranger-0", "InvalidCriteria", brokeringv1alpha1.FilterAnnotation, "cluster")
	b.explained(t, ns, "lost-0", "InvalidCriteria", `there is no PlacementPolicy "none-such"`)
	b.explained(t, ns, "picky-0", "NoProviderFits", "no provider cluster fits: pod filter")

	mended := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "typo-0"}}
	mended.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:"provider.id == 'provider3'"}}}`, brokeringv1alpha1.FilterAnnotation)
	require.NoError(t, b.broker.Client.Patch(t.Context(), &mended, client.RawPatch("application/merge-patch+json", []byte(body))))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "typo-0", "provider3") })

	policy := &brokeringv1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: brokeringv1alpha1.PlacementPolicySpec{
			Filter: "provider.price < 'cheap", PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "governed"}},
		},
	}
	require.NoError(t, b.broker.Client.Create(t.Context(), policy))
	t.Cleanup(func() { _ = b.broker.Client.Delete(context.Background(), policy) })
	eventually(t, 20*time.Second, func(ctx context.Context) error { return b.policyIs(ctx, policy.Name, metav1.ConditionFalse) })
	b.create(t, ns, "governed", 1, nil)
	b.explained(t, ns, "governed-0", "InvalidCriteria", "PlacementPolicy "+ns, "spec.filter")
	require.NoError(t, b.broker.Client.Delete(t.Context(), policy))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "governed-0", "") })
}

// longName offloads a namespace of a consumer whose name is too long at the providers: there it has the ids of two
// clusters at its end. The consumer's own pod says so.
func (b *brokered) longName(t *testing.T) {
	namespace := strings.Repeat("n", 48)
	require.NoError(t, b.consumer.Offload(t.Context(), namespace))
	pod := newPod(namespace, "web")
	require.NoError(t, b.consumer.Client.Create(t.Context(), pod))
	const why = "namespace not offloaded: its name there would have 65 characters, and may have 63"
	b.explained(t, b.consumer.RemoteNamespace(namespace), pod.Name, "NoProviderFits", "no provider cluster fits: "+why)
	eventually(t, patient, func(ctx context.Context) error { return event(ctx, b.consumer, pod, "FailedAssignment", why) })
	require.NoError(t, b.consumer.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	b.settle(t, b.consumer.RemoteNamespace(namespace), 0)
}

// runsAt returns nil if a pod is Running and Ready at a provider; at any provider for "".
func (b *brokered) runsAt(ctx context.Context, namespace, name, provider string) error {
	var pod corev1.Pod
	if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return err
	}
	at := pod.Labels[brokeringv1alpha1.ProviderLabel]
	if at == "" || (provider != "" && at != provider) || pod.Status.Phase != corev1.PodRunning || !podReady(&pod) {
		return fmt.Errorf("pod %s is %s at %q, conditions %+v", name, pod.Status.Phase, at, pod.Status.Conditions)
	}
	return nil
}

func (b *brokered) disabled(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "before", 9, nil)
	b.settle(t, ns, 9)
	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	there := b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider1"]

	b.restore(t, "provider1")
	b.decide(t, "provider1", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Enabled = ptr.To(false) })
	b.create(t, ns, "after", 9, nil)
	b.create(t, ns, "nowhere", 1, only("provider1"))
	b.explained(t, ns, "nowhere-0", "NoProviderFits", "no provider cluster fits", "disabled")
	require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "nowhere-0")))
	b.settle(t, ns, 18)
	assert.Equal(t, there, b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider1"],
		"new pods went to a disabled provider, or old ones left it")
	after, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	require.NoError(t, changed(before, after))

	b.decide(t, "provider1", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Enabled = ptr.To(true) })
	b.create(t, ns, "again", 1, only("provider1"))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "again-0", "provider1") })
}

// cordonedAll cordons all providers. If the Node became not Ready, Kubernetes would evict its pods, and Liqo's
// podstatus-controller would mark them as not Ready within seconds.
func (b *brokered) cordonedAll(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "web", 6, nil)
	b.settle(t, ns, 6)
	for _, provider := range b.providers {
		b.restore(t, provider.Name)
		b.decide(t, provider.Name, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Cordoned = true })
	}
	nodeIs := func(ctx context.Context, unschedulable bool) error {
		var node corev1.Node
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: brokerNode}, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("the Node is not Ready: %s", c.Message)
			}
		}
		if node.Spec.Unschedulable != unschedulable {
			return fmt.Errorf("the Node: unschedulable is %t", node.Spec.Unschedulable)
		}
		return nil
	}
	eventually(t, 15*time.Second, func(ctx context.Context) error { return nodeIs(ctx, true) })
	b.create(t, ns, "late", 1, nil)
	throughout(t, 15*time.Second, func(ctx context.Context) error {
		list, err := pods(ctx, b.broker, ns)
		if err != nil {
			return err
		}
		for i := range list {
			if late := list[i].Name == "late-0"; late != (list[i].Spec.NodeName == "") || !late && !podReady(&list[i]) {
				return fmt.Errorf("pod %s is at %q, Ready is %t", list[i].Name, list[i].Spec.NodeName, podReady(&list[i]))
			}
		}
		return nodeIs(ctx, true)
	})
	b.decide(t, "provider1", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Cordoned = false })
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "late-0", "provider1") })
	require.NoError(t, nodeIs(t.Context(), false))
}

func (b *brokered) drained(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "web", 29, nil)
	b.create(t, ns, "loyal", 1, only("provider2"))
	b.settle(t, ns, 30)
	here := uids(t, b.broker, ns)
	require.NotZero(t, b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider2"])

	watch := b.watchPlaces(t, ns)
	b.restore(t, "provider2")
	began := time.Now()
	b.decide(t, "provider2", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	eventually(t, patient, func(ctx context.Context) error { return b.emptied(ctx, ns, b.providers[1], 29) })
	t.Logf("drained after %s", time.Since(began).Round(100*time.Millisecond))
	watch.end(t)
	assert.Equal(t, here, uids(t, b.broker, ns), "the pods moved, they were not made anew")

	// loyal-0 can run nowhere else: it has left, and waits like any other pod.
	b.explained(t, ns, "loyal-0", "NoProviderFits", "no provider cluster fits", "draining")
	eventually(t, 5*time.Second, func(ctx context.Context) error {
		var loyal corev1.Pod
		err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "loyal-0"}, &loyal)
		if from := loyal.Annotations[brokeringv1alpha1.MovingFromAnnotation]; from != "" {
			err = fmt.Errorf("pod %s is still moving from %s", loyal.Name, from)
		}
		return err
	})
	b.decide(t, "provider2", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = false })
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "loyal-0", "provider2") })
	b.settle(t, ns, 30)
}

// emptied returns nil if a provider has no ShadowPods of a namespace, and that many of its pods run elsewhere.
func (b *brokered) emptied(ctx context.Context, namespace string, provider *sandbox.Cluster, elsewhere int) error {
	there, err := b.places(ctx, namespace)
	if err != nil {
		return err
	}
	for name, at := range there {
		for _, place := range at {
			if strings.HasPrefix(place, provider.Name+"/") {
				return fmt.Errorf("%s still has pod %s", provider.Name, name)
			}
		}
	}
	list, err := pods(ctx, b.broker, namespace)
	if err != nil {
		return err
	}
	running := 0
	for i := range list {
		if at := list[i].Labels[brokeringv1alpha1.ProviderLabel]; at != "" && at != provider.Name && podReady(&list[i]) {
			running++
		}
	}
	if running != elsewhere {
		return fmt.Errorf("%d pods run elsewhere, want %d", running, elsewhere)
	}
	return nil
}

// unassigned tests pods that have no virtual kubelet that would end them.
func (b *brokered) unassigned(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "homeless", 3, func(p *corev1.Pod) {
		annotated(brokeringv1alpha1.FilterAnnotation, "false")(p)
		p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	})
	for i := range 3 {
		b.explained(t, ns, fmt.Sprintf("homeless-%d", i), "NoProviderFits", "no provider cluster fits")
	}
	for i := range 3 {
		require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, fmt.Sprintf("homeless-%d", i))))
	}
	eventually(t, 10*time.Second, func(ctx context.Context) error { return b.settled(ctx, ns, 0) })
}

// succeed makes a pod succeed at its provider, and waits until the broker's cluster shows it.
func (b *brokered) succeed(t *testing.T, provider, namespace, name string) {
	t.Helper()
	key := client.ObjectKey{Namespace: b.broker.RemoteNamespace(namespace), Name: name}
	setStatus(t, b.Cluster(provider), key, func(s *corev1.PodStatus) { exit(s, corev1.PodSucceeded, 0) })
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		return nil
	})
}

// ended tests the pod of a Job: it is not run again when its provider is drained.
func (b *brokered) ended(t *testing.T) {
	ns := b.namespace(t)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: ns},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: newPod(ns, "job").Spec}},
	}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	require.NoError(t, b.broker.Client.Create(t.Context(), job))
	b.settle(t, ns, 1)
	list, err := pods(t.Context(), b.broker, ns)
	require.NoError(t, err)
	worker := &list[0]
	provider := b.Cluster(worker.Labels[brokeringv1alpha1.ProviderLabel])
	key := client.ObjectKey{Namespace: b.broker.RemoteNamespace(ns), Name: worker.Name}
	b.succeed(t, provider.Name, ns, worker.Name)
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := b.broker.Client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.Succeeded != 1 {
			return fmt.Errorf("job status %+v", job.Status)
		}
		return nil
	})

	b.restore(t, provider.Name)
	b.decide(t, provider.Name, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	// A pod that must leave the provider has left it, so the drain has handled all pods.
	throughout(t, 3*time.Second, func(ctx context.Context) error {
		var now corev1.Pod
		if err := b.broker.Client.Get(ctx, client.ObjectKeyFromObject(worker), &now); err != nil {
			return err
		}
		if now.Status.Phase != corev1.PodSucceeded || now.Labels[brokeringv1alpha1.ProviderLabel] != provider.Name {
			return fmt.Errorf("the pod is %s at %q", now.Status.Phase, now.Labels[brokeringv1alpha1.ProviderLabel])
		}
		for _, other := range b.providers {
			err := other.Client.Get(ctx, key, &corev1.Pod{})
			if other != provider && !apierrors.IsNotFound(err) {
				return fmt.Errorf("the pod is at %s: %w", other.Name, err)
			}
		}
		return nil
	})
	require.NoError(t, b.broker.Client.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	b.settle(t, ns, 0)
}
