package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// useClaims replaces the ephemeral volumes of a ShadowPod by the claims that Kubernetes has made for them:
// these are reflected, and the next cluster rejects a pod with an ephemeral volume whose claim is there already.
func useClaims(shadow *corev1.PodSpec, pod *corev1.Pod) {
	for i := range shadow.Volumes {
		if v := &shadow.Volumes[i]; v.Ephemeral != nil {
			name := ephemeral.VolumeClaimName(pod, v)
			v.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		}
	}
}
