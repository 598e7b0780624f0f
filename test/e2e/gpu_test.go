package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")
	// gpuSlice is the second slice of provider1, and the name of its node: 8 CPUs and 4 GPUs.
	gpuSlice = "provider1-gpu"
)

// secondSlice tests a provider with a GPU node that grants a second slice, with GPUs, beside its first one. The slice
// has its own VirtualNode, virtual kubelet and quota.
func secondSlice(t *testing.T, f *federation) {
	ctx := t.Context()
	const namespace = "second-slice"
	require.NoError(t,
		f.remote.AddNode(ctx, gpuSlice, corev1.ResourceList{gpu: resource.MustParse("4")}, map[string]string{"accelerator": "a100"}))
	want := sandbox.Slice{CPU: "8", Memory: "32Gi", Pods: "10"}
	require.NoError(t, f.local.CreateSlice(ctx, gpuSlice, f.remote.Name, want, map[corev1.ResourceName]string{gpu: "4"}))
	require.NoError(t, f.local.WaitVirtualKubelet(ctx, gpuSlice, f.remote.Name))
	require.NoError(t, f.local.WaitNodeReady(ctx, gpuSlice))

	var nodes offloadingv1beta1.VirtualNodeList
	require.NoError(t, f.local.Client.List(ctx, &nodes, client.InNamespace("liqo-tenant-"+f.remote.Name)))
	granted := map[string]string{}
	for i := range nodes.Items {
		q := nodes.Items[i].Spec.ResourceQuota.Hard[gpu]
		granted[nodes.Items[i].Name] = q.String()
	}
	assert.Equal(t, map[string]string{f.remote.Name: "0", gpuSlice: "4"}, granted)

	require.NoError(t, f.local.Offload(ctx, namespace))
	pod := newPod(namespace, "trainer")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: resource.MustParse("1")}
	require.NoError(t, f.local.Client.Create(ctx, pod))
	eventually(t, f.patience(), func(ctx context.Context) error {
		if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != gpuSlice {
			return fmt.Errorf("pod is %s on %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		return nil
	})
	remote, err := f.remote.Kube.CoreV1().Pods(f.local.RemoteNamespace(namespace)).Get(ctx, pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, gpuSlice, remote.Spec.NodeName)
}
