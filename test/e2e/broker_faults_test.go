package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const brokerComponent = sandbox.Broker + "/" + sandbox.BrokerComponent

// restarts kills the broker, then only its leader, then a virtual kubelet, and finally makes a virtual kubelet restart
// itself. Each time 100 pods must not be affected, and pods that were created meanwhile must run afterwards.
func (b *brokered) restarts(t *testing.T) {
	ns := b.namespace(t)
	require.NoError(t, b.broker.Client.Create(t.Context(), newDeployment(ns, "web", 100)))
	eventually(t, 2*patient, func(ctx context.Context) error { return b.settled(ctx, ns, 100) })
	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	unmoved := func(ctx context.Context) error {
		now, err := b.identities(ctx, ns)
		if err == nil {
			err = changed(before, now)
		}
		return err
	}
	n := 100
	recovers := func(t *testing.T, more int) {
		t.Helper()
		n += more
		eventually(t, 2*patient, func(ctx context.Context) error { return b.settled(ctx, ns, n) })
		// A new broker, or virtual kubelet, would act on wrong state within a few probes.
		throughout(t, 5*time.Second, unmoved)
	}

	t.Run("of the broker", func(t *testing.T) {
		require.NoError(t, b.Kill(brokerComponent))
		b.revive(t, brokerComponent)
		b.create(t, ns, "orphan", 5, nil)
		gone := newPod(ns, b.somePod(t, ns, "web"))
		require.NoError(t, b.broker.Client.Delete(t.Context(), gone)) // The virtual kubelet removes it, the Deployment replaces it.
		delete(before, gone.Name)
		throughout(t, nodeGrace+15*time.Second, func(ctx context.Context) error {
			if err := b.served(ctx, ns, before); err != nil {
				return err
			}
			return unmoved(ctx)
		})
		list, err := pods(t.Context(), b.broker, ns)
		require.NoError(t, err)
		for i := range list {
			if _, old := before[list[i].Name]; !old {
				assert.Empty(t, list[i].Labels[brokeringv1alpha1.VirtualNodeLabel], "there is no broker that could assign it")
			}
		}
		require.NoError(t, b.Restart(t.Context(), brokerComponent))
		recovers(t, 5)
	})
	t.Run("of its leader", func(t *testing.T) {
		leader, err := b.BrokerLeader(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Kill(leader))
		b.revive(t, leader)
		b.create(t, ns, "heir", 5, nil)
		recovers(t, 5)
		b.followsLeader(t, ns, leader)
		require.NoError(t, b.Restart(t.Context(), leader))
	})
	t.Run("of a virtual kubelet", func(t *testing.T) {
		const kubelet = sandbox.Broker + "/vk-provider1"
		worker := func(p *corev1.Pod) { only("provider1")(p); p.Spec.RestartPolicy = corev1.RestartPolicyNever }
		b.create(t, ns, "worker", 1, worker)
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "worker-0", "provider1") })
		b.succeed(t, "provider1", ns, "worker-0")
		// Once the broker has assigned a later pod, it knows that worker-0 has ended.
		b.create(t, ns, "witness", 1, only("provider1"))
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "witness-0", "provider1") })

		require.NoError(t, b.Kill(kubelet))
		b.revive(t, kubelet)
		// The new pod has the name of a pod that has ended and whose ShadowPod still exists.
		require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "worker-0"), client.GracePeriodSeconds(0)))
		b.create(t, ns, "worker", 1, worker)
		eventually(t, patient, func(ctx context.Context) error {
			var pod corev1.Pod
			err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "worker-0"}, &pod)
			if err == nil && pod.Labels[brokeringv1alpha1.ProviderLabel] != "provider1" {
				err = fmt.Errorf("the pod is assigned to %q", pod.Labels[brokeringv1alpha1.ProviderLabel])
			}
			return err
		})
		b.create(t, ns, "loyal", 5, only("provider1"))
		b.create(t, ns, "free", 5, only("provider2"))
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "free-4", "provider2") })
		throughout(t, 10*time.Second, unmoved)
		require.NoError(t, b.Restart(t.Context(), kubelet))
		recovers(t, 12)
	})
	t.Run("of a virtual kubelet whose kubeconfig has changed", func(t *testing.T) {
		for i, change := range []func(address string) string{
			func(address string) string { return address + "/" }, // The same API server with another URL.
			func(address string) string { return strings.TrimSuffix(address, "/") },
		} {
			restarts := b.kubeletRestarts(t, "provider1")
			b.changeAddress(t, "provider1", change)
			eventually(t, patient, func(context.Context) error {
				if now := b.kubeletRestarts(t, "provider1"); now <= restarts {
					return fmt.Errorf("the virtual kubelet of provider1 restarted %d times, as before", now)
				}
				return nil
			})
			b.create(t, ns, fmt.Sprint("renewed", i), 5, only("provider1"))
			recovers(t, 5)
		}
	})
}

// nodeGrace is after how long Kubernetes marks a Node as lost whose lease and status are not renewed, and takes its
// pods out of their Services (--node-monitor-grace-period of kube-controller-manager since Kubernetes 1.32).
const nodeGrace = 50 * time.Second

// served returns an error unless the pods and their Node are Ready.
func (b *brokered) served(ctx context.Context, namespace string, which map[string]string) error {
	var node corev1.Node
	if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: brokerNode}, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("the Node is not Ready: %+v", c)
		}
	}
	list, err := pods(ctx, b.broker, namespace)
	for i := range list {
		if _, is := which[list[i].Name]; is && !podReady(&list[i]) {
			return fmt.Errorf("pod %s is not Ready: %+v", list[i].Name, list[i].Status.Conditions)
		}
	}
	return err
}

// kubeletRestarts returns how often the virtual kubelet of a provider's first slice was restarted.
func (b *brokered) kubeletRestarts(t *testing.T, provider string) int32 {
	t.Helper()
	var kubelets corev1.PodList
	require.NoError(t, b.broker.Client.List(t.Context(), &kubelets,
		client.InNamespace("liqo-tenant-"+provider), client.MatchingLabels{consts.VirtualNodeLabel: provider}))
	require.Len(t, kubelets.Items, 1)
	if statuses := kubelets.Items[0].Status.ContainerStatuses; len(statuses) > 0 {
		return statuses[0].RestartCount
	}
	return 0
}

// changeAddress changes the address of a provider's API server in the status of its first slice at the provider, which
// Liqo's controllers there publish. Liqo's CRD replicator copies it to the broker's cluster, where other controllers of
// Liqo write it into the kubeconfig of the virtual kubelet. Other scenarios use a second slice.
func (b *brokered) changeAddress(t *testing.T, provider string, change func(string) string) {
	t.Helper()
	c := b.Cluster(provider)
	rs := &authv1beta1.ResourceSlice{}
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-" + sandbox.Broker, Name: provider}, rs))
	before := rs.DeepCopy()
	require.NotNil(t, rs.Status.AuthParams)
	rs.Status.AuthParams.APIServer = change(rs.Status.AuthParams.APIServer)
	require.NotEqual(t, before.Status.AuthParams.APIServer, rs.Status.AuthParams.APIServer)
	require.NoError(t, c.Client.Status().Patch(t.Context(), rs, client.MergeFrom(before)))
}

// revive restarts a component at the end of a failed test.
func (b *brokered) revive(t *testing.T, name string) {
	t.Cleanup(func() {
		if t.Failed() {
			_ = b.Restart(context.Background(), name)
		}
	})
}

// somePod returns the name of a pod of a Deployment.
func (b *brokered) somePod(t *testing.T, namespace, deployment string) string {
	t.Helper()
	list, err := pods(t.Context(), b.broker, namespace)
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, deployment+"-") })
	require.GreaterOrEqual(t, i, 0)
	return list[i].Name
}

// followsLeader checks that another leader than before leads, that the Node's address is the new leader's, and that it
// answers.
func (b *brokered) followsLeader(t *testing.T, namespace, before string) {
	t.Helper()
	leader, err := b.BrokerLeader(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, leader)
	address, err := b.Address(leader, "kubelet")
	require.NoError(t, err)
	var node corev1.Node
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Name: brokerNode}, &node))
	assert.Equal(t, address, fmt.Sprintf("%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port))
	name := b.somePod(t, namespace, "web")
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		text, err := b.broker.Kube.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(text), simulatedLog) {
			err = fmt.Errorf("the log is %q", text)
		}
		return err
	})
}

// failover freezes the API server of a provider: its connections stay open but get no answers.
func (b *brokered) failover(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "web", 20, nil)
	b.create(t, ns, "database", 1,
		both(only("provider2"), annotated(brokeringv1alpha1.FailoverAnnotation, string(brokeringv1alpha1.FailoverNever))))
	b.create(t, ns, "loyal", 1, only("provider2"))
	// The first pod of a claim decides where its volume is.
	disks(t, b.Cluster("provider2"), 1)
	require.NoError(t, b.broker.Client.Create(t.Context(), newClaim(ns, "data", liqoClass)))
	b.create(t, ns, "first", 1, both(only("provider2"), withClaim("data")))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "first-0", "provider2") })
	b.create(t, ns, "stateful", 1, withClaim("data"))
	require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "first-0")))
	stay := sets.New("database-0", "loyal-0", "stateful-0") // No other provider fits loyal-0 and stateful-0.
	b.settle(t, ns, 23)
	here, at := uids(t, b.broker, ns), b.count(t, ns, brokeringv1alpha1.ProviderLabel)
	require.Greater(t, at["provider2"], stay.Len(), "%v", at)
	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)

	server := "provider2/kube-apiserver"
	require.NoError(t, b.Freeze(server))
	t.Cleanup(func() { _ = b.Resume(server) })
	began := time.Now()
	// Pods at an unreachable provider get no traffic.
	eventually(t, 15*time.Second, func(ctx context.Context) error {
		list, err := pods(ctx, b.broker, ns)
		if err != nil {
			return err
		}
		for i := range list {
			if lost := list[i].Labels[brokeringv1alpha1.ProviderLabel] == "provider2"; podReady(&list[i]) == lost {
				return fmt.Errorf("pod %s at %s: Ready is %t", list[i].Name, list[i].Labels[brokeringv1alpha1.ProviderLabel], !lost)
			}
		}
		return nil
	})
	t.Logf("not Ready after %s", time.Since(began).Round(100*time.Millisecond))
	eventually(t, time.Until(began.Add(failoverAfter+10*time.Second)), func(ctx context.Context) error {
		list, err := pods(ctx, b.broker, ns)
		if err != nil {
			return err
		}
		for i := range list {
			p := &list[i]
			left := p.Labels[brokeringv1alpha1.ProviderLabel] != "provider2" && p.Status.Phase == corev1.PodRunning && podReady(p)
			if left == stay.Has(p.Name) {
				return fmt.Errorf("pod %s is %s at %q, Ready is %t", p.Name, p.Status.Phase, p.Labels[brokeringv1alpha1.ProviderLabel],
					podReady(p))
			}
		}
		return nil
	})
	t.Logf("elsewhere after %s", time.Since(began).Round(100*time.Millisecond))
	assert.GreaterOrEqual(t, time.Since(began), failoverAfter-time.Second)
	assert.Equal(t, here, uids(t, b.broker, ns), "the pods moved, they were not made anew")
	b.moved(t, ns, b.movedPod(t, ns, before), "unreachable for longer than failover.after")
	var stateful corev1.Pod
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "stateful-0"}, &stateful))
	notReady := podCondition(&stateful, corev1.PodReady)
	assert.Equal(t, "the provider cluster cannot be reached; its volumes are there", notReady.Message)
	assert.WithinDuration(t, began, notReady.LastTransitionTime.Time, 20*time.Second)
	require.NoError(t, b.event(t.Context(), &stateful, "MoveWaits", "Staying at", "unreachable", "volume data is at provider provider2"))

	b.create(t, ns, "patient", 1, only("provider2"))
	b.explained(t, ns, "patient-0", "NoProviderFits", "no provider cluster fits", "not ready")
	// The provider gets no new pods before the moved pods are removed from it. Afterwards it has only the pods that are
	// assigned to it.
	cleaned := b.watchCleaning(t, ns, "provider2", "patient-0")
	require.NoError(t, b.Resume(server))
	b.settle(t, ns, 24)
	cleaned.end(t)
	t.Logf("cleaned up, and used again, %s after the freeze", time.Since(began).Round(100*time.Millisecond))
	after, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	for name := range stay {
		assert.Equal(t, before[name], after[name], "it ran all the time")
	}
	for name := range before {
		if strings.Contains(before[name], "at provider1") || strings.Contains(before[name], "at provider3") {
			assert.Equal(t, before[name], after[name], "its provider was never away")
		}
	}
}

// movedPod returns the name of a pod that was at provider2 and has moved.
func (b *brokered) movedPod(t *testing.T, namespace string, before map[string]string) string {
	t.Helper()
	list, err := pods(t.Context(), b.broker, namespace)
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(p corev1.Pod) bool {
		return strings.Contains(before[p.Name], "at provider2 ") && p.Labels[brokeringv1alpha1.ProviderLabel] != "provider2"
	})
	require.GreaterOrEqual(t, i, 0)
	return list[i].Name
}

// suspicion makes two of three providers unreachable at once: the broker assumes that its own network failed.
func (b *brokered) suspicion(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "web", 15, nil)
	b.settle(t, ns, 15)
	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	assigned, err := b.assignments(t.Context(), ns)
	require.NoError(t, err)
	for _, provider := range []string{"provider2", "provider3"} {
		require.NoError(t, b.Freeze(provider+"/kube-apiserver"))
		t.Cleanup(func() { _ = b.Resume(provider + "/kube-apiserver") })
	}
	for _, provider := range []string{"provider2", "provider3"} {
		eventually(t, 15*time.Second, func(ctx context.Context) error { return b.reachable(ctx, provider, metav1.ConditionFalse) })
	}
	unmoved := func(ctx context.Context) error {
		now, err := b.assignments(ctx, ns)
		if err == nil {
			err = changed(assigned, now)
		}
		return err
	}
	throughout(t, failoverAfter+8*time.Second, unmoved)
	b.cutOff(t, unmoved)
	b.settle(t, ns, 15)
	after, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	require.NoError(t, changed(before, after))
}

// cutOff makes the first of three providers unreachable after the two others, lets another replica become the leader,
// and makes the providers reachable again one after the other. Pods do not move meanwhile.
func (b *brokered) cutOff(t *testing.T, unmoved func(context.Context) error) {
	t.Helper()
	require.NoError(t, b.Freeze("provider1/kube-apiserver"))
	t.Cleanup(func() { _ = b.Resume("provider1/kube-apiserver") })
	eventually(t, 15*time.Second, func(ctx context.Context) error { return b.reachable(ctx, "provider1", metav1.ConditionFalse) })
	leader, err := b.BrokerLeader(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Kill(leader))
	b.revive(t, leader)
	eventually(t, patient, func(ctx context.Context) error { return b.isLedByAnother(ctx, leader) })
	// Kubernetes would delete the pods of a Node that is not Ready.
	throughout(t, 5*time.Second, func(ctx context.Context) error {
		if err := b.isLedByAnother(ctx, leader); err != nil {
			return err
		}
		return unmoved(ctx)
	})
	require.NoError(t, b.Restart(t.Context(), leader))

	for _, provider := range []string{"provider1", "provider2"} {
		require.NoError(t, b.Resume(provider+"/kube-apiserver"))
		eventually(t, 15*time.Second, func(ctx context.Context) error { return b.reachable(ctx, provider, metav1.ConditionTrue) })
	}
	// The new leader cannot know that the third provider was unreachable before: it suspects its own network.
	throughout(t, failoverAfter-8*time.Second, unmoved)
	require.NoError(t, b.Resume("provider3/kube-apiserver"))
}

// unguarded deletes a binding of the guard: no pod is assigned until it is back.
func (b *brokered) unguarded(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "before", 1, nil)
	b.settle(t, ns, 1)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Name: "liqo-broker-pods"}, binding))
	require.NoError(t, b.broker.Client.Delete(t.Context(), binding))
	apply := func(ctx context.Context) error {
		binding.ResourceVersion = ""
		return client.IgnoreAlreadyExists(b.broker.Client.Create(ctx, binding))
	}
	t.Cleanup(func() { require.NoError(t, apply(context.Background())) })
	nodeIs := func(ctx context.Context, want corev1.ConditionStatus) error {
		var node corev1.Node
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: brokerNode}, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == brokeringv1alpha1.NodeUnguarded && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("the Node has the conditions %v", node.Status.Conditions)
	}
	eventually(t, 20*time.Second, func(ctx context.Context) error { return nodeIs(ctx, corev1.ConditionTrue) })
	b.create(t, ns, "during", 1, nil)
	b.explained(t, ns, "during-0", "Unguarded", "policy liqo-broker-pods has no binding", "kubectl apply -f deploy/guard.yaml")
	require.NoError(t, b.runsAt(t.Context(), ns, "before-0", ""), "what runs goes on")

	require.NoError(t, apply(t.Context()))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "during-0", "") })
	eventually(t, 20*time.Second, func(ctx context.Context) error { return nodeIs(ctx, corev1.ConditionFalse) })
}

// isLedByAnother returns an error until another leader than before serves the broker's Node and the Node is Ready.
func (b *brokered) isLedByAnother(ctx context.Context, before string) error {
	leader, err := b.BrokerLeader(ctx)
	if err != nil {
		return err
	}
	address, err := b.Address(leader, "kubelet")
	if err != nil {
		return err
	}
	var node corev1.Node
	if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: brokerNode}, &node); err != nil {
		return err
	}
	serves := fmt.Sprintf("%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if leader == before || serves != address || !ready {
		return fmt.Errorf("the leader is %s, at %s; the Node is at %s: %+v", leader, address, serves, node.Status.Conditions)
	}
	return nil
}

// assignments returns the assignments of pods according to the broker's cluster alone, so providers need not answer.
func (b *brokered) assignments(ctx context.Context, namespace string) (map[string]string, error) {
	list, err := pods(ctx, b.broker, namespace)
	out := map[string]string{}
	for i := range list {
		p := &list[i]
		out[p.Name] = fmt.Sprintf("%s at %s by %s", p.UID, p.Labels[brokeringv1alpha1.VirtualNodeLabel],
			p.Annotations[brokeringv1alpha1.AssignedAtAnnotation])
	}
	return out, err
}

func (b *brokered) reachable(ctx context.Context, provider string, want metav1.ConditionStatus) error {
	c, err := b.reachability(ctx, provider)
	if err == nil && (c == nil || c.Status != want) {
		err = fmt.Errorf("%s: condition %+v", provider, c)
	}
	return err
}

// reachability returns the condition Reachable of a provider; nil if it has none yet.
func (b *brokered) reachability(ctx context.Context, provider string) (*metav1.Condition, error) {
	var pc brokeringv1alpha1.ProviderCluster
	err := b.broker.Client.Get(ctx, client.ObjectKey{Name: provider}, &pc)
	return meta.FindStatusCondition(pc.Status.Conditions, brokeringv1alpha1.ProviderReachable), err
}
