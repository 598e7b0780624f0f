package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// connectTo gives the controller the clients of the VirtualNode q1 of a provider, which has these pods.
func (c *Controller) connectTo(provider string, pods ...string) *kubefake.Clientset {
	there := kubefake.NewClientset()
	for _, name := range pods {
		_ = there.Tracker().Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns-r", Name: name, Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	c.Checker.Connections.Set(&remote.Connection{
		Provider: provider, VirtualNode: "q1",
		Kube: remotetest.Kube(there), Probes: remotetest.Probes(there), Liqo: remotetest.Liqo(liqofake.NewSimpleClientset()),
	})
	return there
}

// sees has the broker know a provider with a VirtualNode q1.
func (c *Controller) sees(provider string, draining, answers bool, filter verdict.Filter) {
	c.State.SetProvider(provider, state.ProviderSpec{
		Enabled: true, Draining: draining, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	for range 2 {
		c.State.ObserveProbe(provider, state.Probe{Began: time.Now(), Ended: time.Now(), Answered: answers})
	}
	c.State.Schedule(scheduler.Provider{
		ID: provider, Enabled: true, Draining: draining, Ready: answers, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{VirtualNode: "q1", Filter: filter, Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
	})
}

// Providers z and q each have a VirtualNode of the same name; the pod runs at q. A new leader may see either of them
// first.
func TestAPodIsThatOfItsProviderWhoeverHasAVirtualNodeOfTheName(t *testing.T) {
	for name, tc := range map[string]struct {
		order   []string
		changes func(c *Controller)
	}{
		"the second is drained":            {[]string{"q", "z"}, func(c *Controller) { c.sees("z", true, true, verdict.NameNotUnique) }},
		"the second cannot be reached":     {[]string{"q", "z"}, func(c *Controller) { c.sees("z", false, false, verdict.NameNotUnique) }},
		"the second is deleted":            {[]string{"q", "z"}, func(c *Controller) { c.State.RemoveProvider("z") }},
		"a leader sees the second first":   {[]string{"z", "q"}, func(c *Controller) { c.sees("z", true, true, verdict.NameNotUnique) }},
		"and that one is deleted":          {[]string{"z", "q"}, func(c *Controller) { c.State.RemoveProvider("z") }},
		"a leader does not know the first": {[]string{"z"}, func(c *Controller) { c.sees("z", true, true, verdict.NameNotUnique) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, false, interceptor.Funcs{}, nil,
				assignedPod(corev1.PodRunning), virtualNodeOf("q", "q1"), virtualNodeOf("z", "q1"))
			for _, provider := range tc.order {
				c.sees(provider, false, true, verdict.NameNotUnique)
				c.connectTo(provider)
			}
			before, _ := c.reconciled(t, "pod")
			tc.changes(c)
			for range 3 {
				after, _ := c.reconciled(t, "pod")
				require.Equal(t, before.Labels, after.Labels)
				require.Equal(t, before.Annotations, after.Annotations)
				c.Checker.Check(t.Context(), scheduler.Place{Provider: "q", VirtualNode: "q1"})
				c.Checker.Check(t.Context(), scheduler.Place{Provider: "z", VirtualNode: "q1"})
			}
		})
	}
}

// The provider where the pod runs is asked, and not the other one, which has no such pod.
func TestAPodLeavesTheProviderThatHasIt(t *testing.T) {
	leftBehind := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-q", Name: "q", Labels: map[string]string{"liqo.io/remote-cluster-id": "q"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"ns": {RemoteNamespace: "ns-r", Phase: offloadingv1beta1.MappingTerminating},
		}},
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		first   func(c *Controller)
	}{
		"it is drained": {
			[]client.Object{virtualNodeOf("q", "q1"), virtualNodeOf("z", "q1")},
			func(c *Controller) { c.sees("q", true, true, verdict.NameNotUnique) },
		},
		"its VirtualNode is deleted": {
			[]client.Object{virtualNodeOf("z", "q1")}, func(c *Controller) { c.State.RemoveProvider("q") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, false, interceptor.Funcs{}, nil,
				append(tc.objects, assignedPod(corev1.PodRunning), leftBehind.DeepCopy())...)
			c.sees("q", false, true, verdict.NameNotUnique)
			first := c.connectTo("q", "pod")
			c.sees("z", false, true, verdict.NameNotUnique)
			second := c.connectTo("z")
			tc.first(c)
			c.sees("z", false, true, verdict.Passed) // The worst case, though a name that is not unique gets no pods.
			step := func() corev1.Pod {
				c.reconciled(t, "pod")
				c.Checker.Check(t.Context(), scheduler.Place{Provider: "q", VirtualNode: "q1"})
				c.Checker.Check(t.Context(), scheduler.Place{Provider: "z", VirtualNode: "q1"})
				pod, _ := c.reconciled(t, "pod")
				return pod
			}
			pod := step()
			for range 3 {
				c.released(t, &pod, v1alpha1.Assignment("q1", &pod))
				pod = step()
				require.Empty(t, pod.Labels[v1alpha1.ProviderLabel], "it leaves, and is not gone")
				require.Equal(t, "q", pod.Annotations[v1alpha1.MovingFromProviderAnnotation])
			}
			require.Empty(t, second.Actions(), "it is not asked")

			require.NoError(t, first.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
			step()
			pod = step()
			require.Equal(t, "z", pod.Labels[v1alpha1.ProviderLabel])
			require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
		})
	}
}
