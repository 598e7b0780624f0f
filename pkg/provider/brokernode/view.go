package brokernode

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// View says which pods of which node a virtual kubelet serves.
type View struct {
	// Node is the broker's node.
	Node string
	// VirtualNode is the VirtualNode whose pods are served: the value of v1alpha1.VirtualNodeLabel.
	VirtualNode string
	// LiqoNodeName is the name by which Liqo marks and recognises its remote objects (--nodename). No pod is bound to
	// a node of that name.
	LiqoNodeName string
	// ForwardTokens lets the service account tokens of consumers through to the provider cluster.
	ForwardTokens bool
}

// assigned selects the pods of the view among those of the node.
func (v View) assigned() (labels.Requirement, error) {
	requirement, err := labels.NewRequirement(v1alpha1.VirtualNodeLabel, selection.Equals, []string{v.VirtualNode})
	if err != nil {
		return labels.Requirement{}, err
	}
	return *requirement, nil
}

// narrow adds a requirement to the label selector of a request.
func narrow(selector string, requirement labels.Requirement) (string, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return "", err
	}
	return parsed.Add(requirement).String(), nil
}

// Terminal says whether the pod has ended for good.
func Terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
