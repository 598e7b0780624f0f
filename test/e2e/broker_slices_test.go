package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

func requests(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		resources := &p.Spec.Containers[0].Resources
		if name == gpu { // Kubernetes requires a limit for resources that cannot be overcommitted.
			resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
		}
		resources.Requests[name] = resource.MustParse(amount)
	}
}

func both(first, second func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { first(p); second(p) }
}

// grows makes a provider grant more than before.
func (b *brokered) grows(t *testing.T) {
	t.Cleanup(func() { b.grant(t, "provider2", "16") })
	ns := b.namespace(t)
	b.create(t, ns, "large", 1, requests(corev1.ResourceCPU, "20"))
	b.explained(t, ns, "large-0", "NoProviderFits", "no provider cluster fits: insufficient cpu")
	began := time.Now()
	b.grant(t, "provider2", "24")
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "large-0", "provider2") })
	t.Logf("placed %s after more was asked for", time.Since(began).Round(100*time.Millisecond))
	b.settle(t, ns, 1)
}

// grant requests another number of CPUs for a provider's first slice, and waits until the broker shows it.
func (b *brokered) grant(t *testing.T, provider, cpus string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: provider}}
	within(ctx, t, func(ctx context.Context) error {
		if err := b.broker.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
			return err
		}
		slice.Spec.Resources[corev1.ResourceCPU] = resource.MustParse(cpus)
		return b.broker.Client.Update(ctx, slice)
	})
	within(ctx, t, func(ctx context.Context) error { return b.granted(ctx, provider, provider, corev1.ResourceCPU, cpus) })
}

// granted returns nil if the broker shows an amount of a resource as granted to a slice, and the slice as ready.
func (b *brokered) granted(ctx context.Context, provider, slice string, name corev1.ResourceName, amount string) error {
	var pc brokeringv1alpha1.ProviderCluster
	if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: provider}, &pc); err != nil {
		return err
	}
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		if shown := vn.Resources.Granted[name]; vn.Name == slice && vn.Ready && shown.Cmp(resource.MustParse(amount)) == 0 {
			return nil
		}
	}
	return fmt.Errorf("slice %s with %s %s is not among %+v", slice, amount, name, pc.Status.VirtualNodes)
}

// withGPUs creates the second slice of provider1 unless it exists.
func (b *brokered) withGPUs(t *testing.T) {
	t.Helper()
	provider1 := b.providers[0]
	err := b.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-provider1", Name: gpuSlice},
		&offloadingv1beta1.VirtualNode{})
	if apierrors.IsNotFound(err) {
		require.NoError(t, provider1.AddNode(t.Context(), gpuSlice, corev1.ResourceList{gpu: resource.MustParse("4")}, nil))
		want := sandbox.Slice{CPU: "8", Memory: "32Gi", Pods: "100"}
		require.NoError(t, b.broker.CreateSlice(t.Context(), gpuSlice, provider1.Name, want, map[corev1.ResourceName]string{gpu: "4"}))
		err = b.broker.WaitVirtualKubelet(t.Context(), gpuSlice, provider1.Name)
	}
	require.NoError(t, err)
	eventually(t, 30*time.Second, func(ctx context.Context) error { return b.granted(ctx, "provider1", gpuSlice, gpu, "4") })
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		var node corev1.Node
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: brokerNode}, &node); err != nil {
			return err
		}
		if shown := node.Status.Allocatable[gpu]; shown.Cmp(resource.MustParse("4")) != 0 {
			return fmt.Errorf("node %s shows %s GPUs", node.Name, shown.String())
		}
		return nil
	})
}

// slices assigns GPU pods to the slice with GPUs. Other pods fill the slice without GPUs first, then the slice with
// GPUs.
func (b *brokered) slices(t *testing.T) {
	b.withGPUs(t)
	ns := b.namespace(t)
	b.create(t, ns, "trainer", 4, requests(gpu, "1"))
	b.settle(t, ns, 4)
	require.Equal(t, map[string]int{gpuSlice: 4}, b.count(t, ns, brokeringv1alpha1.VirtualNodeLabel))
	running, err := pods(t.Context(), b.providers[0], b.broker.RemoteNamespace(ns))
	require.NoError(t, err)
	for i := range running {
		assert.Equal(t, gpuSlice, running[i].Spec.NodeName, "the node that has GPUs")
	}

	// 16 CPUs in the first slice, and the CPUs that the trainers leave of the 8 in the second.
	b.create(t, ns, "web", 11, both(only("provider1"), requests(corev1.ResourceCPU, "2")))
	b.settle(t, ns, 15)
	assert.Equal(t, map[string]int{"provider1": 8, gpuSlice: 4 + 3}, b.count(t, ns, brokeringv1alpha1.VirtualNodeLabel))
	b.create(t, ns, "late", 1, both(only("provider1"), requests(corev1.ResourceCPU, "2")))
	b.explained(t, ns, "late-0", "NoProviderFits", "no provider cluster fits", "insufficient cpu")
	require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "web-0")))
	b.settle(t, ns, 15)
}

// betweenSlices moves pods between the slices of one provider: by changing the label, as an administrator may, and
// because they are Pending for too long in the first slice.
func (b *brokered) betweenSlices(t *testing.T) {
	b.withGPUs(t)
	ns := b.namespace(t)
	b.policy(t, ns, brokeringv1alpha1.PlacementPolicySpec{Providers: []string{"provider1"}})
	b.create(t, ns, "web", 5, nil)
	b.settle(t, ns, 5)
	require.Equal(t, map[string]int{"provider1": 5}, b.count(t, ns, brokeringv1alpha1.VirtualNodeLabel))
	here := uids(t, b.broker, ns)
	for _, slice := range []string{gpuSlice, "provider1"} {
		b.relabel(t, ns, slice)
		b.settle(t, ns, 5)
		require.Equal(t, map[string]int{slice: 5}, b.count(t, ns, brokeringv1alpha1.VirtualNodeLabel))
	}
	assert.Equal(t, here, uids(t, b.broker, ns))

	eventually(t, 20*time.Second, func(ctx context.Context) error {
		var policy brokeringv1alpha1.PlacementPolicy
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: ns}, &policy); err != nil {
			return err
		}
		policy.Spec.PendingTimeout = &metav1.Duration{Duration: 5 * time.Second}
		return b.broker.Client.Update(ctx, &policy)
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error { return b.policyIs(ctx, ns, metav1.ConditionTrue) })
	b.cordonNodes(t, b.providers[0], true)
	b.create(t, ns, "patient", 3, nil)
	// Not all at once: a pod whose remote pod was not seen waits for 30 s, until Liqo can no longer create it.
	moved := map[string]bool{}
	eventually(t, patient, func(ctx context.Context) error {
		for i := range 3 {
			var pod corev1.Pod
			if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: fmt.Sprintf("patient-%d", i)}, &pod); err != nil {
				return err
			}
			at := pod.Labels[brokeringv1alpha1.VirtualNodeLabel]
			moved[pod.Name] = moved[pod.Name] || at == gpuSlice
			if !moved[pod.Name] {
				return fmt.Errorf("pod %s is assigned to %q", pod.Name, at)
			}
		}
		return nil
	})
	b.cordonNodes(t, b.providers[0], false)
	b.settle(t, ns, 8)
}

// relabel assigns all pods of a namespace to another slice at once, as an administrator may do in place of the broker.
func (b *brokered) relabel(t *testing.T, namespace, slice string) {
	t.Helper()
	list, err := pods(t.Context(), b.broker, namespace)
	require.NoError(t, err)
	body := fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, brokeringv1alpha1.VirtualNodeLabel, slice,
		brokeringv1alpha1.AssignedAtAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
	for i := range list {
		require.NoError(t, b.broker.Client.Patch(t.Context(), &list[i], client.RawPatch(types.MergePatchType, []byte(body))))
	}
}

// cordonNodes cordons or uncordons the nodes of a provider. It uncordons them at the end of the test.
func (b *brokered) cordonNodes(t *testing.T, provider *sandbox.Cluster, cordon bool) {
	t.Helper()
	set := func(cordon bool) error {
		var nodes corev1.NodeList
		if err := provider.Client.List(context.Background(), &nodes, client.MatchingLabels{"type": "kwok"}); err != nil {
			return err
		}
		if len(nodes.Items) == 0 {
			return fmt.Errorf("%s has no simulated node", provider.Name)
		}
		body := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordon)
		for i := range nodes.Items {
			patch := client.RawPatch(types.MergePatchType, []byte(body))
			if err := provider.Client.Patch(context.Background(), &nodes.Items[i], patch); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, set(cordon))
	if cordon {
		t.Cleanup(func() { require.NoError(t, set(false)) })
	}
}

// prefer returns a score that sends pods to one provider as long as that accepts them.
func prefer(provider string) brokeringv1alpha1.PlacementPolicySpec {
	return brokeringv1alpha1.PlacementPolicySpec{
		Score:   fmt.Sprintf("provider.id == '%s' ? 100 : 0", provider),
		Weights: []brokeringv1alpha1.Weight{{Name: "expression", Weight: 1}},
	}
}

// pending tests a provider whose nodes are full or do not exist, although its grant has capacity.
func (b *brokered) pending(t *testing.T) {
	ns := b.namespace(t)
	policy := prefer("provider2")
	policy.PendingTimeout = &metav1.Duration{Duration: 5 * time.Second}
	b.policy(t, ns, policy)
	b.cordonNodes(t, b.providers[1], true)
	watch := b.watchPlaces(t, ns)
	began := time.Now()
	b.create(t, ns, "web", 5, nil)
	eventually(t, 10*time.Second, func(context.Context) error {
		if at := b.count(t, ns, brokeringv1alpha1.ProviderLabel); at["provider2"] != 5 {
			return fmt.Errorf("the pods are at %v", at)
		}
		return nil
	})
	eventually(t, 25*time.Second, func(ctx context.Context) error { return b.settled(ctx, ns, 5) })
	t.Logf("elsewhere after %s", time.Since(began).Round(100*time.Millisecond))
	require.Zero(t, b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider2"])
	watch.end(t)
	b.moved(t, ns, "web-0", "Pending at provider2 for longer than pendingTimeout")
}

// moved waits for the event with the reason why a pod was evicted.
func (b *brokered) moved(t *testing.T, namespace, name, why string) {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &pod))
	eventually(t, 20*time.Second, func(ctx context.Context) error { return b.event(ctx, &pod, "Moving", why) })
}

// refused tests a provider whose granted resources other pods use. The pods prefer that provider, and move to another
// one within seconds. Pods that may run only there wait until it has free resources again.
func (b *brokered) refused(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "pioneer", 1, only("provider3"))
	b.settle(t, ns, 1)
	other := ns + "-x"
	require.NoError(t, b.broker.Offload(t.Context(), other))
	t.Cleanup(func() { b.remove(t, other) })
	blocker := b.block(t, ns, other, "15500m")

	b.policy(t, ns, prefer("provider3"))
	watch := b.watchPlaces(t, ns)
	began := time.Now()
	b.create(t, ns, "web", 4, requests(corev1.ResourceCPU, "1"))
	eventually(t, 15*time.Second, func(ctx context.Context) error { return b.settled(ctx, ns, 5) })
	t.Logf("elsewhere after %s", time.Since(began).Round(100*time.Millisecond))
	require.Equal(t, 1, b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider3"], "the pioneer alone")
	watch.end(t)
	b.moved(t, ns, "web-0", "refused the pod")

	b.create(t, ns, "loyal", 1, both(only("provider3"), requests(corev1.ResourceCPU, "1")))
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		var loyal corev1.Pod
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "loyal-0"}, &loyal); err != nil {
			return err
		}
		c := podCondition(&loyal, brokeringv1alpha1.ConditionAssigned)
		if c == nil || !containsAll(c.Message, []string{"no provider cluster fits", "in back-off"}) {
			return fmt.Errorf("pod %s is at %q, condition %+v", loyal.Name, loyal.Labels[brokeringv1alpha1.ProviderLabel], c)
		}
		return nil
	})
	require.NoError(t, b.providers[2].Client.Delete(t.Context(), blocker))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "loyal-0", "provider3") })
	b.settle(t, ns, 6)
}

// block uses CPUs of the grant of provider3 without the broker's knowledge.
func (b *brokered) block(t *testing.T, namespace, into, cpus string) *offloadingv1beta1.ShadowPod {
	t.Helper()
	kubelet, blocker := b.asKubelet(t, namespace, into, cpus)
	require.NoError(t, kubelet.Create(t.Context(), blocker))
	return blocker
}

// asKubelet returns a client with the credentials of the virtual kubelet of provider3, and a ShadowPod for another
// namespace that has the labels of a namespace's ShadowPods.
func (b *brokered) asKubelet(t *testing.T, namespace, into, cpus string) (client.Client, *offloadingv1beta1.ShadowPod) {
	t.Helper()
	var vn offloadingv1beta1.VirtualNode
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-provider3", Name: "provider3"}, &vn))
	secret, err := b.broker.Kube.CoreV1().Secrets(vn.Namespace).Get(t.Context(), vn.Spec.KubeconfigSecretRef.Name, metav1.GetOptions{})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	require.NoError(t, err)
	there := b.providers[2].Client
	direct, err := client.New(config, client.Options{Scheme: there.Scheme(), Mapper: there.RESTMapper()})
	require.NoError(t, err)
	var virtual offloadingv1beta1.ShadowPodList
	require.NoError(t, there.List(t.Context(), &virtual, client.InNamespace(b.broker.RemoteNamespace(namespace))))
	require.NotEmpty(t, virtual.Items)
	pod := newPod(b.broker.RemoteNamespace(into), "blocker")
	requests(corev1.ResourceCPU, cpus)(pod)
	return direct, &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace,
			// Liqo's webhook requires these labels. A virtual kubelet removes ShadowPods with its node name that it
			// does not know.
			Labels: with(virtual.Items[0].Labels, "offloading.liqo.io/nodename", "elsewhere"),
		},
		Spec: offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec},
	}
}
