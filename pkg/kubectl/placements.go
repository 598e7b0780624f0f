package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// GetPlacements prints the pods bound to the broker's node, with their provider cluster.
func (s *Session) GetPlacements(ctx context.Context, q Query) error {
	if err := q.validate(); err != nil {
		return err
	}
	v := &view{
		list: &corev1.PodList{}, one: &corev1.Pod{}, nothing: "No resources found",
		unmatched: fmt.Sprintf("is not bound to node %s (--broker-node), or does not match --provider and --consumer", q.Node),
	}
	if !q.AllNamespaces {
		v.namespace, v.nothing = s.Namespace, fmt.Sprintf("No resources found in %s namespace.", s.Namespace)
	}
	if q.Provider != "" {
		at, err := labels.NewRequirement(v1alpha1.ProviderLabel, selection.Equals, []string{q.Provider})
		if err != nil {
			return fmt.Errorf("--provider=%s: %w", q.Provider, err)
		}
		if q.Labels == nil {
			q.Labels = labels.NewSelector()
		}
		q.Labels = q.Labels.Add(*at)
	}
	from, err := s.origins(ctx, v.namespace, q.Consumer != "")
	if err != nil {
		return err
	}
	v.options = q.selected(client.InNamespace(v.namespace), ofNode(q.Node))
	v.matches = func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && pod.Spec.NodeName == q.Node && q.matches(o) &&
			(q.Consumer == "" || from.consumerOf(ctx, o.GetNamespace()) == q.Consumer)
	}
	v.columns = s.placementColumns(q.AllNamespaces, func(pod *corev1.Pod) string {
		return cmp.Or(from.consumerOf(ctx, pod.Namespace), none)
	})
	return s.printView(ctx, v, &q)
}

func ofNode(node string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}
}

func (s *Session) placementColumns(namespaced bool, consumer func(*corev1.Pod) string) []column {
	of, wide := columnsOf[*corev1.Pod]()
	columns := []column{
		of("Name", func(pod *corev1.Pod) string { return pod.Name }),
		of("Ready", containersReady),
		of("Status", podStatus),
		of("Consumer", consumer),
		of("Provider", func(pod *corev1.Pod) string { return cmp.Or(pod.Labels[v1alpha1.ProviderLabel], none) }),
		of("Score", func(pod *corev1.Pod) string { score, _ := decision(pod); return score }),
		of("Since", func(pod *corev1.Pod) string {
			if pod.Labels[v1alpha1.VirtualNodeLabel] == "" {
				return none
			}
			return age(s.Now(), assignedAt(pod))
		}),
		of("Age", func(pod *corev1.Pod) string { return age(s.Now(), pod.CreationTimestamp.Time) }),
		wide("Virtual-Node", func(pod *corev1.Pod) string { return cmp.Or(placement.PlaceOf(pod).VirtualNode, none) }),
		wide("Decision", func(pod *corev1.Pod) string { _, why := decision(pod); return why }),
	}
	if namespaced {
		columns = append([]column{of("Namespace", func(pod *corev1.Pod) string { return pod.Namespace })}, columns...)
	}
	return columns
}

// podStatus returns the status column: the phase, or the broker's present action on the pod.
func podStatus(pod *corev1.Pod) string {
	switch {
	case placement.Terminal(pod):
		return string(pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return "Terminating"
	case pod.Labels[v1alpha1.VirtualNodeLabel] != "" && pod.Annotations[v1alpha1.UnreachableAnnotation] != "":
		return "Unreachable"
	case pod.Labels[v1alpha1.VirtualNodeLabel] != "":
		return string(pod.Status.Phase)
	case pod.Annotations[v1alpha1.MovingFromAnnotation] != "":
		return "Moving"
	default:
		return "Waiting"
	}
}

func containersReady(pod *corev1.Pod) string {
	ready := 0
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers))
}

// decision returns the score of the provider that a pod is assigned to, and its parts. For a pod without a provider it
// returns the reason.
func decision(pod *corev1.Pod) (score, why string) {
	text := pod.Annotations[v1alpha1.DecisionAnnotation]
	if pod.Labels[v1alpha1.ProviderLabel] == "" {
		if text == "" {
			text = unassignedMessage(pod)
		}
		return none, cmp.Or(text, none)
	}
	points, plugins, ok := verdict.ParseShort(text)
	if !ok {
		return unknown, cmp.Or(text, unknown)
	}
	return strconv.Itoa(points), cmp.Or(plugins, none)
}

// unassignedMessage returns the message of the condition Assigned if that is False, else "".
func unassignedMessage(pod *corev1.Pod) string {
	if c := placement.Condition(pod, v1alpha1.ConditionAssigned); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message
	}
	return ""
}

// assignedAt returns when a pod was assigned to its provider; zero if the annotation is missing or not a time.
func assignedAt(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
