package remote

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// object has the fields that are read of every object at a provider.
type object struct {
	Metadata struct {
		Name   untrusted.Name `json:"name"`
		UID    untrusted.Name `json:"uid"`
		Labels struct {
			Origin   untrusted.Name `json:"offloading.liqo.io/origin"`   // forge.LiqoOriginClusterIDKey
			NodeName untrusted.Name `json:"offloading.liqo.io/nodename"` // forge.LiqoOriginClusterNodeName
		} `json:"labels"`
		Annotations struct {
			PodUID untrusted.Name `json:"brokering.liqo.io/pod-uid"` // v1alpha1.PodUIDAnnotation
		} `json:"annotations"`
		// DeletionTimestamp is "" unless it is being deleted.
		DeletionTimestamp untrusted.Name `json:"deletionTimestamp"`
	} `json:"metadata"`
}

// podUID returns the UID of the pod here that it was made of; "" if that is not said.
func (o *object) podUID() types.UID { return types.UID(o.Metadata.Annotations.PodUID) }

// pod has the fields that are read of a pod at a provider: those that decide whether it leaves, and those that are
// shown of one that has ended. It has no amounts, whose texts may take hours to parse.
type pod struct {
	object
	Status podStatus `json:"status"`
}

type podStatus struct {
	Phase                 corev1.PodPhase                    `json:"phase"`
	Reason                string                             `json:"reason"`
	Message               string                             `json:"message"`
	Conditions            untrusted.Few[corev1.PodCondition] `json:"conditions"`
	ContainerStatuses     untrusted.Few[containerStatus]     `json:"containerStatuses"`
	InitContainerStatuses untrusted.Few[containerStatus]     `json:"initContainerStatuses"`
}

type containerStatus struct {
	Name                 string                `json:"name"`
	State                corev1.ContainerState `json:"state"`
	LastTerminationState corev1.ContainerState `json:"lastState"`
	Ready                bool                  `json:"ready"`
	RestartCount         int32                 `json:"restartCount"`
	Image                string                `json:"image"`
	ImageID              string                `json:"imageID"`
	ContainerID          string                `json:"containerID"`
	Started              *bool                 `json:"started"`
}

func (s *podStatus) status() *corev1.PodStatus {
	return &corev1.PodStatus{
		Phase: s.Phase, Reason: s.Reason, Message: s.Message, Conditions: s.Conditions,
		ContainerStatuses: statuses(s.ContainerStatuses), InitContainerStatuses: statuses(s.InitContainerStatuses),
	}
}

func statuses(of []containerStatus) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i := range of {
		c := &of[i]
		list = append(list, corev1.ContainerStatus{
			Name: c.Name, State: c.State, LastTerminationState: c.LastTerminationState, Ready: c.Ready, RestartCount: c.RestartCount,
			Image: c.Image, ImageID: c.ImageID, ContainerID: c.ContainerID, Started: c.Started,
		})
	}
	return list
}
