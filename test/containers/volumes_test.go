package containers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// testVolume writes to a volume of a provider, which a directory of this machine stands for, and reads it with another
// pod, over two hops and real kubelets.
func testVolume(t *testing.T, f *federation) {
	amount := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	disks := map[string]string{}
	for _, provider := range f.providers {
		disks[provider.Name] = t.TempDir()
		disk := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "disk"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: amount, AccessModes: modes, StorageClassName: sandbox.StorageClass,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
					Path: disks[provider.Name], Type: ptr.To(corev1.HostPathDirectory),
				}},
			},
		}
		require.NoError(t, provider.Client.Create(t.Context(), disk))
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "data", Annotations: map[string]string{consts.RemotePVCStorageClassAnnotKey: "liqo"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("liqo"), AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: amount},
		},
	}
	mounting := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	f.create(t, claim, shell("writer", "echo kept > /data/file; "+serve, mounting))
	f.becomes(t, "writer", ready)
	at, _ := f.at(t.Context(), "writer")
	require.NotNil(t, at)
	requireFile := func() {
		for provider, dir := range disks {
			text, err := os.ReadFile(filepath.Join(dir, "file"))
			require.Equal(t, provider == at.Name, err == nil, "%s: %v", provider, err)
			require.Contains(t, []string{"", "kept\n"}, string(text))
		}
	}
	requireFile()

	// The next pod waits for the first, because the volume is for one pod, and reads its data.
	f.create(t, shell("reader", "cat /data/file; "+serve, mounting))
	f.kubectl(t, f.consumer, "delete", "pod", "-n", namespace, "writer")
	f.becomes(t, "reader", ready)
	now, _ := f.at(t.Context(), "reader")
	require.Equal(t, at, now)
	require.Contains(t, f.kubectl(t, f.consumer, "logs", "-n", namespace, "reader"), "kept\n")

	// A drain leaves it: no other provider has the data.
	before := f.becomes(t, "reader", ready)
	f.drain(t, at.Name, true)
	eventually(t, func(ctx context.Context) error {
		var pc v1alpha1.ProviderCluster
		if err := f.broker.Client.Get(ctx, client.ObjectKey{Name: at.Name}, &pc); err != nil {
			return err
		}
		drained := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderDrained)
		want := "1 pod is left, 1 stays because no other provider fits (" + f.consumer.RemoteNamespace(namespace) + "/reader)"
		if drained == nil || drained.Message != want {
			return fmt.Errorf("condition %+v", drained)
		}
		return nil
	})
	f.drain(t, at.Name, false)
	after := f.becomes(t, "reader", ready)
	require.Equal(t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)

	f.kubectl(t, f.consumer, "delete", "pod", "-n", namespace, "reader")
	require.NoError(t, f.consumer.Client.Delete(t.Context(), claim))
	eventually(t, func(ctx context.Context) error {
		var left corev1.PersistentVolumeClaimList
		if err := at.Client.List(ctx, &left, client.InNamespace(f.remoteNamespace())); err != nil || len(left.Items) == 0 {
			return err
		}
		return fmt.Errorf("%s has claim %s", at.Name, left.Items[0].Name)
	})
	requireFile() // By the reclaim policy of the provider's volume.
}

// drain drains a provider, or ends that.
func (f *federation) drain(t *testing.T, provider string, drain bool) {
	t.Helper()
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}}
	body := fmt.Sprintf(`{"spec":{"drain":%v}}`, drain)
	require.NoError(t, f.broker.Client.Patch(t.Context(), pc, client.RawPatch(types.MergePatchType, []byte(body))))
}
