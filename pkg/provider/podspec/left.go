package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqotech/liqo/pkg/consts"
)

// LeftOut returns the fields of a local pod, by their API names, that are missing from its ShadowPod although the pod
// behaves differently without them. Fields that choose a node are not forwarded on purpose, as in Liqo's
// forge.RemotePodSpec.
func LeftOut(local, shadow *corev1.PodSpec) []string {
	runtime := local.RuntimeClassName != nil && *local.RuntimeClassName != consts.LiqoRuntimeClassName
	claims := slices.ContainsFunc(slices.Concat(local.InitContainers, local.Containers), func(c corev1.Container) bool {
		return len(c.Resources.Claims) > 0
	})
	var fields []string
	for _, field := range []struct {
		name string
		lost bool
	}{
		{"hostNetwork", local.HostNetwork && !shadow.HostNetwork},
		{"hostPID", local.HostPID && !shadow.HostPID},
		{"hostIPC", local.HostIPC && !shadow.HostIPC},
		{"hostUsers", local.HostUsers != nil && !*local.HostUsers && shadow.HostUsers == nil},
		{"hostnameOverride", local.HostnameOverride != nil && shadow.HostnameOverride == nil},
		{"os", local.OS != nil && local.OS.Name != corev1.Linux && shadow.OS == nil},
		{"resources", !empty(local.Resources) && empty(shadow.Resources)},
		{"resourceClaims", (len(local.ResourceClaims) > 0 || claims) && len(shadow.ResourceClaims) == 0},
		{"runtimeClassName", runtime && shadow.RuntimeClassName == nil},
		{"workloadRef", local.WorkloadRef != nil && shadow.WorkloadRef == nil},
	} {
		if field.lost {
			fields = append(fields, field.name)
		}
	}
	return fields
}

func empty(r *corev1.ResourceRequirements) bool {
	return r == nil || len(r.Requests)+len(r.Limits)+len(r.Claims) == 0
}
