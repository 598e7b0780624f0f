package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// models checks that Liqo and Kubernetes behave like the models of test/histories (docs/designs/0015).
func (b *brokered) models(t *testing.T) {
	ns := b.namespace(t)
	other := ns + "-x"
	require.NoError(t, b.broker.Offload(t.Context(), other))
	t.Cleanup(func() { b.remove(t, other) })
	b.policy(t, ns, prefer("provider3"))
	b.create(t, ns, "web", 2, requests(corev1.ResourceCPU, "2"))
	b.settle(t, ns, 2)
	require.Equal(t, map[string]int{"provider3": 2}, b.count(t, ns, brokeringv1alpha1.ProviderLabel))
	t.Run("kube-scheduler binds what the Node has room for", func(t *testing.T) { b.bound(t, other) })
	t.Run("the quota counts what has ended", func(t *testing.T) { b.quotaCountsEnded(t, ns, other) })
	t.Run("a creation whose client is gone is cancelled", func(t *testing.T) { b.cancelled(t, ns, other) })
	t.Run("a VirtualNode is gone before its pods are", func(t *testing.T) { b.goneBeforeItsPods(t, ns) })
}

// bound checks that kube-scheduler binds no pod that requests more than FreeOnNode finds free on the broker's Node, and
// sets PodScheduled=False. Once another pod is gone it binds a pod that requests all of it.
func (b *brokered) bound(t *testing.T, ns string) {
	free := func() int64 {
		var node corev1.Node
		require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Name: brokerNode}, &node))
		list, err := pods(t.Context(), b.broker, metav1.NamespaceAll)
		require.NoError(t, err)
		all := make([]*corev1.Pod, len(list))
		for i := range list {
			all[i] = &list[i]
		}
		return judge.FreeOnNode(&node, all)
	}
	get := func(ctx context.Context) (*corev1.Pod, error) {
		var pod corev1.Pod
		return &pod, b.broker.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "large-0"}, &pod)
	}
	const filler = 2000
	b.create(t, ns, "filler", 1, requests(corev1.ResourceCPU, fmt.Sprintf("%dm", filler)))
	b.settle(t, ns, 1)
	b.create(t, ns, "large", 1, requests(corev1.ResourceCPU, fmt.Sprintf("%dm", free()+filler)))
	eventually(t, patient, func(ctx context.Context) error {
		pod, err := get(ctx)
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "Insufficient cpu") {
				return nil
			}
		}
		return fmt.Errorf("the pod is at %q: %v", pod.Spec.NodeName, pod.Status.Conditions)
	})
	require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "filler-0")))
	eventually(t, patient, func(ctx context.Context) error {
		pod, err := get(ctx)
		if err == nil && pod.Spec.NodeName != brokerNode {
			err = fmt.Errorf("the pod is not bound: %v", pod.Status.Conditions)
		}
		return err
	})
	require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "large-0")))
	eventually(t, patient, func(ctx context.Context) error {
		_, err := get(ctx)
		return stillThere(err)
	})
}

// quotaCountsEnded checks that Liqo's webhook counts the ShadowPod of an ended pod until the ShadowPod is deleted. 16
// CPUs are granted; two pods request two each, and one of them has ended.
func (b *brokered) quotaCountsEnded(t *testing.T, ns, other string) {
	provider := b.providers[2]
	key := client.ObjectKey{Namespace: b.broker.RemoteNamespace(ns), Name: "web-1"}
	setStatus(t, provider, key, func(s *corev1.PodStatus) { exit(s, corev1.PodSucceeded, 0) })
	throughout(t, time.Second, func(ctx context.Context) error {
		return provider.Client.Get(ctx, key, &offloadingv1beta1.ShadowPod{})
	})
	kubelet, tooMuch := b.asKubelet(t, ns, other, "13")
	err := kubelet.Create(t.Context(), tooMuch)
	require.True(t, kerrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "quota usage exceeded")
	_, fits := b.asKubelet(t, ns, other, "12")
	require.NoError(t, kubelet.Create(t.Context(), fits))
	require.NoError(t, kubelet.Delete(t.Context(), fits))
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		return stillThere(provider.Client.Get(ctx, client.ObjectKeyFromObject(fits), &corev1.Pod{}))
	})
}

// cancelled makes a client give up while the webhook does not answer. The API server then also gives up, and creates
// nothing when the webhook answers again.
func (b *brokered) cancelled(t *testing.T, ns, other string) {
	kubelet, shadow := b.asKubelet(t, ns, other, "1")
	name := "provider3/liqo-webhook"
	require.NoError(t, b.Freeze(name))
	t.Cleanup(func() { assert.NoError(t, b.Resume(name)) })
	ctx, giveUp := context.WithTimeout(t.Context(), 2*time.Second)
	defer giveUp()
	require.ErrorIs(t, kubelet.Create(ctx, shadow), context.DeadlineExceeded)
	require.NoError(t, b.Resume(name))
	throughout(t, 3*time.Second, func(ctx context.Context) error {
		return stillThere(b.providers[2].Client.Get(ctx, client.ObjectKeyFromObject(shadow), &offloadingv1beta1.ShadowPod{}))
	})
}

// goneBeforeItsPods checks that Liqo deletes the virtual kubelet with a VirtualNode and requests the removal of the
// namespaces, but does not wait for it. The NamespaceMap lists a namespace as long as it exists at the provider; a pod
// that its kubelet does not end keeps it there. No other provider gets the pod meanwhile.
func (b *brokered) goneBeforeItsPods(t *testing.T, ns string) {
	home, provider := b.broker.Client, b.providers[2]
	remote := client.ObjectKey{Namespace: b.broker.RemoteNamespace(ns), Name: "web-0"}
	kubelet := provider.Name + "/kwok"
	require.NoError(t, b.Freeze(kubelet))
	t.Cleanup(func() { assert.NoError(t, b.Resume(kubelet)) })

	meta := metav1.ObjectMeta{Namespace: "liqo-tenant-provider3", Name: "provider3"}
	slice, virtualNode := &authv1beta1.ResourceSlice{ObjectMeta: meta}, &offloadingv1beta1.VirtualNode{ObjectMeta: meta}
	require.NoError(t, home.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
	require.NoError(t, home.Delete(t.Context(), slice))
	require.NoError(t, client.IgnoreNotFound(home.Delete(t.Context(), virtualNode)))
	t.Cleanup(func() {
		asked := slice.Spec.Resources
		ctx := context.Background()
		require.NoError(t, b.broker.CreateSlice(ctx, "provider3", "provider3",
			sandbox.Slice{CPU: asked.Cpu().String(), Memory: asked.Memory().String(), Pods: asked.Pods().String()}, nil))
		require.NoError(t, b.broker.WaitVirtualKubelet(ctx, "provider3", "provider3"))
	})
	eventually(t, patient, func(ctx context.Context) error {
		return stillThere(home.Get(ctx, client.ObjectKeyFromObject(virtualNode), virtualNode))
	})
	deployment := client.ObjectKey{Namespace: meta.Namespace, Name: "vk-provider3"}
	require.NoError(t, stillThere(home.Get(t.Context(), deployment, &appsv1.Deployment{})), "the virtual kubelet goes first")
	throughout(t, 3*time.Second, func(ctx context.Context) error {
		if err := home.Get(ctx, client.ObjectKey{Namespace: ns, Name: "web-0"}, &corev1.Pod{}); err != nil {
			return fmt.Errorf("the pod in the broker's cluster: %w", err)
		}
		if err := provider.Client.Get(ctx, remote, &corev1.Pod{}); err != nil {
			return fmt.Errorf("the pod at the provider: %w", err)
		}
		for _, elsewhere := range b.providers[:2] {
			if err := stillThere(elsewhere.Client.Get(ctx, remote, &corev1.Pod{})); err != nil {
				return fmt.Errorf("%s: %w", elsewhere.Name, err)
			}
		}
		phase := b.mapped(ctx, ns, "provider3")
		if phase != offloadingv1beta1.MappingTerminating && phase != offloadingv1beta1.MappingAccepted {
			return fmt.Errorf("the NamespaceMap has %q for the namespace, in which a pod is left", phase)
		}
		return nil
	})
	require.NoError(t, b.Resume(kubelet))
	eventually(t, patient, func(ctx context.Context) error {
		if phase := b.mapped(ctx, ns, "provider3"); phase != "" {
			return fmt.Errorf("the NamespaceMap has %q for the namespace", phase)
		}
		return nil
	})
	require.NoError(t, stillThere(provider.Client.Get(t.Context(), remote, &corev1.Pod{})))
	eventually(t, patient, func(ctx context.Context) error {
		if b.runsAt(ctx, ns, "web-0", "provider1") == nil {
			return nil
		}
		return b.runsAt(ctx, ns, "web-0", "provider2")
	})
}

// mapped returns the phase of a namespace in the NamespaceMap of a provider; "" if there is none.
func (b *brokered) mapped(ctx context.Context, ns, provider string) offloadingv1beta1.MappingPhase {
	var m offloadingv1beta1.NamespaceMap
	if b.broker.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-" + provider, Name: provider}, &m) != nil {
		return ""
	}
	return m.Status.CurrentMapping[ns].Phase
}

// stillThere returns nil if err means that an object does not exist.
func stillThere(err error) error {
	if err == nil {
		return errors.New("the object is there")
	}
	return client.IgnoreNotFound(err)
}
