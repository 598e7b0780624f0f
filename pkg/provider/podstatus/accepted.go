// Package podstatus converts the status of a remote pod into a status that this cluster's API server accepts for the
// local pod. The API server validates a status against the pod that it stores (ValidatePodStatusUpdate in Kubernetes'
// pkg/apis/core/validation), and rejects the whole status for one wrong field. The remote pod differs: admission there
// adds containers and resources, and the pod may have been recreated.
package podstatus

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Show returns the remote pod with the status to write into the local pod. It changes neither argument.
func Show(local, remote *corev1.Pod) *corev1.Pod {
	shown := *remote
	shown.Status = *remote.Status.DeepCopy()
	status := &shown.Status
	keepFieldsOfThisCluster(status, &local.Status)
	status.Conditions = acceptedConditions(status.Conditions)
	followGeneration(status, local)
	if placement.Terminal(remote) && remote.DeletionTimestamp != nil && local.DeletionTimestamp == nil {
		Disrupt(status, *remote.DeletionTimestamp)
	}
	keepGates(local, status)
	status.ContainerStatuses = acceptedContainers(status.ContainerStatuses, local.Status.ContainerStatuses,
		&local.Spec, local.Spec.Containers)
	status.InitContainerStatuses = acceptedContainers(status.InitContainerStatuses, local.Status.InitContainerStatuses,
		&local.Spec, local.Spec.InitContainers)
	status.EphemeralContainerStatuses = acceptedEphemeral(status.EphemeralContainerStatuses, local)
	return &shown
}

// keepFieldsOfThisCluster keeps the fields that the API server or controllers of this cluster set. The QoS class is
// immutable, a bound pod is not nominated, and this cluster's controller creates claims for the claims in the local
// spec.
func keepFieldsOfThisCluster(status, local *corev1.PodStatus) {
	status.QOSClass = local.QOSClass
	status.NominatedNodeName = local.NominatedNodeName
	status.ResourceClaimStatuses = slices.Clone(local.ResourceClaimStatuses)
	status.ExtendedResourceClaimStatus = local.ExtendedResourceClaimStatus.DeepCopy()
}

// acceptedConditions omits conditions with an invalid type.
func acceptedConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	return slices.DeleteFunc(conditions, func(c corev1.PodCondition) bool {
		return len(validation.IsQualifiedName(string(c.Type))) > 0
	})
}

// followGeneration limits the observed generations, which the remote kubelet reports for the remote pod, to the local
// pod's generation. The API server keeps the stored value of a generation that is omitted.
func followGeneration(status *corev1.PodStatus, local *corev1.Pod) {
	bounded := func(observed, before int64) int64 {
		if observed <= 0 {
			return before
		}
		return min(observed, local.Generation)
	}
	status.ObservedGeneration = bounded(status.ObservedGeneration, local.Status.ObservedGeneration)
	for i := range status.Conditions {
		before := int64(0)
		if was := Condition(&local.Status, status.Conditions[i].Type); was != nil {
			before = was.ObservedGeneration
		}
		status.Conditions[i].ObservedGeneration = bounded(status.Conditions[i].ObservedGeneration, before)
	}
}

// Condition returns the first condition of a type; nil if there is none.
func Condition(status *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

// acceptedContainers omits containers that run or wait remotely although they have ended here and may not restart by
// the local spec: the remote pod was recreated. A container without a status counts as not started, and its next status
// may have any state.
func acceptedContainers(statuses, before []corev1.ContainerStatus, spec *corev1.PodSpec,
	containers []corev1.Container,
) []corev1.ContainerStatus {
	var accepted []corev1.ContainerStatus
	for _, status := range statuses {
		container := containerOf(containers, status.Name)
		if status.State.Terminated == nil && slices.ContainsFunc(before, func(was corev1.ContainerStatus) bool {
			return was.Name == status.Name && was.State.Terminated != nil && !mayRestart(container, spec, was.State.Terminated.ExitCode)
		}) {
			continue
		}
		status.User = acceptedUser(status.User, spec)
		status.AllocatedResourcesStatus = acceptedAllocated(status.AllocatedResourcesStatus, container)
		accepted = append(accepted, status)
	}
	return accepted
}

// acceptedEphemeral does the same for ephemeral containers, which never restart.
func acceptedEphemeral(statuses []corev1.ContainerStatus, local *corev1.Pod) []corev1.ContainerStatus {
	never := &corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, OS: local.Spec.OS}
	accepted := acceptedContainers(statuses, local.Status.EphemeralContainerStatuses, never, []corev1.Container{})
	for i := range accepted {
		accepted[i].AllocatedResourcesStatus = nil
	}
	return accepted
}

// containerOf returns the container of a name; nil if the local pod does not have it.
func containerOf(containers []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// mayRestart reports whether a container that ended with an exit code may start again, as the API server decides
// (ContainerShouldRestart and AllContainersCouldRestart in Kubernetes' pkg/api/v1/pod).
func mayRestart(container *corev1.Container, spec *corev1.PodSpec, exitCode int32) bool {
	if restartsAll(spec) {
		return true
	}
	if container == nil {
		return false
	}
	policy := spec.RestartPolicy
	if container.RestartPolicy != nil {
		if restartedByRule(container.RestartPolicyRules, exitCode) {
			return true
		}
		policy = corev1.RestartPolicy(*container.RestartPolicy)
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exitCode != 0
}

// restartsAll reports whether a rule of a container restarts all containers of the pod.
func restartsAll(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(rule corev1.ContainerRestartRule) bool {
			return rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// restartedByRule reports whether the first rule for an exit code restarts the container.
func restartedByRule(rules []corev1.ContainerRestartRule, exitCode int32) bool {
	for i := range rules {
		codes := rules[i].ExitCodes
		if codes == nil {
			continue
		}
		in := slices.Contains(codes.Values, exitCode)
		if codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn && in ||
			codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn && !in {
			return rules[i].Action == corev1.ContainerRestartRuleActionRestart
		}
	}
	return false
}

// acceptedUser omits a user that the API server does not accept.
func acceptedUser(user *corev1.ContainerUser, spec *corev1.PodSpec) *corev1.ContainerUser {
	switch {
	case user == nil || user.Linux == nil:
		return user
	case spec.OS != nil && spec.OS.Name == corev1.Windows:
		return nil
	}
	groups := append(slices.Clone(user.Linux.SupplementalGroups), user.Linux.GID)
	if len(validation.IsValidUserID(user.Linux.UID)) > 0 || slices.ContainsFunc(groups, func(id int64) bool {
		return len(validation.IsValidGroupID(id)) > 0
	}) {
		return nil
	}
	return user
}

// acceptedAllocated omits the health of resources that the local container does not request, and invalid health.
func acceptedAllocated(allocated []corev1.ResourceStatus, container *corev1.Container) []corev1.ResourceStatus {
	var accepted []corev1.ResourceStatus
	for _, resource := range allocated {
		if container != nil && !requests(container, string(resource.Name)) {
			continue
		}
		seen := sets.New[corev1.ResourceID]()
		resource.Resources = slices.DeleteFunc(slices.Clone(resource.Resources), func(r corev1.ResourceHealth) bool {
			known := r.Health == corev1.ResourceHealthStatusHealthy || r.Health == corev1.ResourceHealthStatusUnhealthy ||
				r.Health == corev1.ResourceHealthStatusUnknown
			again := seen.Has(r.ResourceID)
			seen.Insert(r.ResourceID)
			return again || !known
		})
		accepted = append(accepted, resource)
	}
	return accepted
}

// requests reports whether a container requests a resource, or a claim by the name "claim:<claim>" or
// "claim:<claim>/<request>".
func requests(container *corev1.Container, name string) bool {
	claim, is := strings.CutPrefix(name, "claim:")
	if !is {
		_, requested := container.Resources.Requests[corev1.ResourceName(name)]
		return requested
	}
	return slices.ContainsFunc(container.Resources.Claims, func(c corev1.ResourceClaim) bool {
		return c.Name == claim || c.Request != "" && c.Name+"/"+c.Request == claim
	})
}
