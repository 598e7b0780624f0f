package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// quota fills the provider's grant of 16 CPUs. The pods name their node, because kube-scheduler would hold back the pod
// that does not fit.
func quota(t *testing.T, f *federation) {
	local, _ := f.namespaces(t)
	big := func(name string) *corev1.Pod {
		pod := newPod(local, name)
		pod.Spec.NodeName = f.node
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("12")
		return pod
	}
	first, second := big("first"), big("second")
	f.runPod(t, first)
	require.NoError(t, f.local.Client.Create(t.Context(), second))
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		var list corev1.EventList
		if err := f.local.Client.List(ctx, &list, client.InNamespace(local)); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.Name == second.Name && e.Reason == "FailedReflection" &&
				strings.Contains(e.Message, "cpu quota usage exceeded") {
				return nil
			}
		}
		return fmt.Errorf("none of %d events reports that the quota is exceeded", len(list.Items))
	})
	require.NoError(t, f.local.Client.Get(t.Context(), client.ObjectKeyFromObject(second), second))
	require.Equal(t, corev1.PodPending, second.Status.Phase)

	require.NoError(t, f.local.Client.Delete(t.Context(), first))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 1) })
}

// replicas runs two virtual kubelets of one node and removes the leader.
func replicas(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	f.setReplicas(t, 2)
	t.Cleanup(func() { f.setReplicas(t, 1) })
	require.NoError(t, f.local.Client.Create(t.Context(), newDeployment(local, "web", 10)))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 10) })
	here, there := uids(t, f.local, local), uids(t, f.remote, remote)

	tenant := "liqo-tenant-" + f.node
	leader := f.leader(t)
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = leader, tenant
	require.NoError(t, f.local.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	eventually(t, time.Minute, func(context.Context) error {
		if now := f.leader(t); now == leader || now == "" {
			return fmt.Errorf("the leader is %q still", now)
		}
		return nil
	})
	require.NoError(t, f.local.Client.Create(t.Context(), newPod(local, "after")))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 11) })
	assert.Subset(t, uids(t, f.local, local), here, "no local pod was recreated")
	assert.Subset(t, uids(t, f.remote, remote), there, "no remote pod was recreated")
}

// leader returns the name of the pod that holds the virtual node's lease.
func (f *federation) leader(t *testing.T) string {
	t.Helper()
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: "liqo-tenant-" + f.node, Name: f.node}
	require.NoError(t, f.local.Client.Get(t.Context(), key, &lease))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

func (f *federation) setReplicas(t *testing.T, n int32) {
	t.Helper()
	tenant := "liqo-tenant-" + f.node
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// The webhook writes the template's number of replicas into a VirtualNode at each update of the VirtualNode
	// (pkg/webhooks/virtualnode/mutate.go).
	var template offloadingv1beta1.VkOptionsTemplate
	require.NoError(t, f.local.Client.Get(ctx, client.ObjectKey{Namespace: "liqo", Name: "virtual-kubelet-default"}, &template))
	template.Spec.Replicas = &n
	require.NoError(t, f.local.Client.Update(ctx, &template))
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var vn offloadingv1beta1.VirtualNode
		require.NoError(t, f.local.Client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: f.node}, &vn))
		if *vn.Spec.Template.Spec.Replicas != n { // the webhook's cache may lag
			metav1.SetMetaDataAnnotation(&vn.ObjectMeta, "touched", time.Now().String())
			_ = f.local.Client.Update(ctx, &vn)
		}
		var d appsv1.Deployment
		err := f.local.Client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: "vk-" + f.node}, &d)
		if err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == n && d.Status.Replicas == n {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "Deployment %s: %+v %v", d.Name, d.Status, err)
		case <-tick.C:
		}
	}
}

// restart kills the virtual kubelet of 100 pods and starts it again.
func restart(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	d := newDeployment(local, "web", 100)
	require.NoError(t, f.local.Client.Create(t.Context(), d))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 100) })
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.remote, remote, 100) })
	here, there := uids(t, f.local, local), uids(t, f.remote, remote)

	replaced := newPod(local, "replaced")
	f.runPod(t, replaced)

	require.NoError(t, f.Kill(f.kubelet))
	// While it is down, five pods are added, one is deleted, and one is replaced by another pod of the same name.
	gone := ""
	for name := range here {
		gone = name
		break
	}
	require.NoError(t, f.local.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	d.Spec.Replicas = ptr.To(int32(105))
	require.NoError(t, f.local.Client.Update(t.Context(), d))
	lost := newPod(local, gone)
	require.NoError(t, f.local.Client.Delete(t.Context(), lost))
	delete(here, gone)
	delete(there, gone)
	require.NoError(t, f.local.Client.Delete(t.Context(), replaced, client.GracePeriodSeconds(0)))
	successor := newPod(local, "replaced")
	successor.Spec.Containers[0].Image = "registry.k8s.io/pause:3.9"
	require.NoError(t, f.local.Client.Create(t.Context(), successor))

	require.NoError(t, f.Restart(t.Context(), f.kubelet))
	f.succeeds(t, successor)
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 105) })
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.remote, remote, 105) })
	assert.Subset(t, uids(t, f.local, local), here, "no local pod was recreated")
	assert.Subset(t, uids(t, f.remote, remote), there, "no remote pod was recreated")
}

// succeeds checks that the provider runs a pod, and not its predecessor of the same name that was deleted while the
// virtual kubelet was down. Liqo's virtual kubelet matches pods by name, so the predecessor continues and is shown as
// the new pod. Then succeeds deletes both.
func (f *federation) succeeds(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if f.image != sandbox.ImageStock {
		eventually(t, f.patience(), func(ctx context.Context) error {
			remote, err := f.remotePod(ctx, pod)
			if err != nil {
				return err
			}
			if image := remote.Spec.Containers[0].Image; image != pod.Spec.Containers[0].Image || remote.DeletionTimestamp != nil {
				return fmt.Errorf("the provider has image %s, deleted at %v", image, remote.DeletionTimestamp)
			}
			if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if !podReady(pod) || pod.Status.StartTime.Before(&pod.CreationTimestamp) {
				return fmt.Errorf("ready is %t, started %v, created %v", podReady(pod), pod.Status.StartTime, pod.CreationTimestamp)
			}
			return nil
		})
	}
	require.NoError(t, f.local.Client.Delete(t.Context(), pod))
	eventually(t, f.patience(), func(ctx context.Context) error {
		_, err := f.remotePod(ctx, pod)
		return stillThere(err)
	})
}

// frozen freezes the provider's API server without closing its connections, like a network partition, and resumes it.
// The pods name the node of the second provider.
func frozen(t *testing.T, f *federation, local string) {
	remote := f.local.RemoteNamespace(local)
	web := newDeployment(local, "web", 10)
	web.Spec.Template.Spec.NodeName = f.node
	require.NoError(t, f.local.Client.Create(t.Context(), web))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 10) })
	here, there := uids(t, f.local, local), uids(t, f.remote, remote)

	server := f.remote.Name + "/kube-apiserver"
	require.NoError(t, f.Freeze(server))
	t.Cleanup(func() { _ = f.Resume(server) })
	began := time.Now()
	f.expectNodeReady(t, 3*time.Minute, false)
	t.Logf("node %s not Ready %s after the freeze", f.node, time.Since(began).Round(time.Second))
	assert.Equal(t, here, uids(t, f.local, local), "pods are left in place")

	require.NoError(t, f.Resume(server))
	f.expectNodeReady(t, 2*time.Minute, true)
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 10) })
	after := newPod(local, "after")
	after.Spec.NodeName = f.node
	f.runPod(t, after)
	assert.Subset(t, uids(t, f.local, local), here)
	assert.Subset(t, uids(t, f.remote, remote), there)
}

func (f *federation) nodeReady(ctx context.Context) (bool, error) {
	var node corev1.Node
	if err := f.local.Client.Get(ctx, client.ObjectKey{Name: f.node}, &node); err != nil {
		return false, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, nil
		}
	}
	return false, fmt.Errorf("no Ready condition")
}
