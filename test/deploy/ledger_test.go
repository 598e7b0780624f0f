package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The broker writes its ledger on a volume, which only one pod at a time can use.
func TestTheLedgerHasAVolume(t *testing.T) {
	const claim = "liqo-broker-ledger"
	require.False(t, has(rendered(t, All), "PersistentVolumeClaim", claim))
	values := Values(All)
	values["broker"] = map[string]any{"replicas": 1, "ledger": map[string]any{"enabled": true, "size": "5Gi", "storageClassName": "ssd"}}
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	made := find[corev1.PersistentVolumeClaim](t, objects, "PersistentVolumeClaim", claim)
	require.Equal(t, "ssd", *made.Spec.StorageClassName)
	require.Equal(t, "5Gi", made.Spec.Resources.Requests.Storage().String())
	require.Equal(t, "keep", made.Annotations["helm.sh/resource-policy"])

	broker := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker").Spec
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, broker.Strategy.Type)
	pod := broker.Template.Spec
	require.Contains(t, pod.Containers[0].Args, "--ledger=/var/lib/liqo-broker/ledger.db")
	require.Contains(t, pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "ledger", MountPath: "/var/lib/liqo-broker"})
	require.Contains(t, pod.Volumes, corev1.Volume{Name: "ledger", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	require.Equal(t, *pod.SecurityContext.RunAsUser, *pod.SecurityContext.FSGroup, "it may write there")
}
