// Package podspec completes the remote pod spec that Liqo builds from a local pod (forge.RemotePodSpec), and names the
// fields that are not forwarded.
package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Complete changes the spec that Liqo has built for the ShadowPod of a local pod, before the ShadowPod is created: the
// pod keeps its resources, user namespace and host name, and the remote API server accepts its selectors. Readiness
// gates are not forwarded: their controllers are in this cluster.
func Complete(shadow, local *corev1.PodSpec) {
	shadow.Resources = local.Resources.DeepCopy()
	if local.HostUsers != nil && !*local.HostUsers { // Only this host setting restricts the pod; Liqo decides about the others.
		shadow.HostUsers = ptr.To(false)
	}
	if local.HostnameOverride != nil {
		shadow.HostnameOverride = ptr.To(*local.HostnameOverride)
	}
	shadow.ReadinessGates = nil
	leaveOutMergedKeys(shadow)
}

// leaveOutMergedKeys omits the label keys whose values are in the selector. The API server that stored the local pod
// has merged them (applyMatchLabelKeys in Kubernetes' pkg/registry/core/pod), and the next API server rejects a pod
// that has a key in both places.
func leaveOutMergedKeys(spec *corev1.PodSpec) {
	spec.TopologySpreadConstraints = slices.Clone(spec.TopologySpreadConstraints)
	for i := range spec.TopologySpreadConstraints {
		constraint := &spec.TopologySpreadConstraints[i]
		constraint.MatchLabelKeys = notIn(constraint.LabelSelector, constraint.MatchLabelKeys)
	}
	if spec.Affinity == nil {
		return
	}
	spec.Affinity = spec.Affinity.DeepCopy()
	if a := spec.Affinity.PodAffinity; a != nil {
		leaveOutOfTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := spec.Affinity.PodAntiAffinity; a != nil {
		leaveOutOfTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func leaveOutOfTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for i := range required {
		leaveOutOfTerm(&required[i])
	}
	for i := range preferred {
		leaveOutOfTerm(&preferred[i].PodAffinityTerm)
	}
}

func leaveOutOfTerm(term *corev1.PodAffinityTerm) {
	term.MatchLabelKeys = notIn(term.LabelSelector, term.MatchLabelKeys)
	term.MismatchLabelKeys = notIn(term.LabelSelector, term.MismatchLabelKeys)
}

// notIn returns the keys that the selector has no requirement for.
func notIn(selector *metav1.LabelSelector, keys []string) []string {
	if selector == nil {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, required := selector.MatchLabels[key]
		return required || slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == key
		})
	})
}
