package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// GetPlacements shows the pods bound to the broker's node, and where they are.
func (s *Session) GetPlacements(ctx context.Context, q Query) error {
	if err := q.validate(); err != nil {
		return err
	}
	v := &view{
		list: &corev1.PodList{}, one: &corev1.Pod{}, nothing: "No resources found",
		unlike: fmt.Sprintf("is not one of the pods asked for, of those bound to node %s (--broker-node)", q.Node),
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
	v.options = q.narrow(client.InNamespace(v.namespace), ofNode(q.Node))
	v.keep = func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && pod.Spec.NodeName == q.Node && q.wants(o) &&
			(q.Consumer == "" || from.of(ctx, o.GetNamespace()) == q.Consumer)
	}
	v.columns = s.placementColumns(q.AllNamespaces, func(pod *corev1.Pod) string {
		return orNone(from.of(ctx, pod.Namespace))
	})
	return s.show(ctx, v, &q)
}

// ofNode has the API server send the pods of one node only.
func ofNode(node string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}
}

func (s *Session) placementColumns(namespaced bool, consumer func(*corev1.Pod) string) []column {
	of := func(name string, cell func(*corev1.Pod) string) column {
		return column{name: name, cell: func(o client.Object) string {
			pod, ok := o.(*corev1.Pod)
			if !ok {
				return unknown
			}
			return cell(pod)
		}}
	}
	wide := func(c column) column { c.wide = true; return c }
	fleeting := func(c column) column { c.fleeting = true; return c }
	columns := []column{
		of("Name", func(pod *corev1.Pod) string { return pod.Name }),
		of("Ready", containersReady),
		of(statusColumn, podStatus),
		of("Consumer", consumer),
		of("Provider", func(pod *corev1.Pod) string { return orNone(pod.Labels[v1alpha1.ProviderLabel]) }),
		of("Score", func(pod *corev1.Pod) string { score, _ := decision(pod); return score }),
		fleeting(of("Since", func(pod *corev1.Pod) string {
			if pod.Labels[v1alpha1.VirtualNodeLabel] == "" {
				return none
			}
			return age(s.Now(), assigned(pod))
		})),
		fleeting(of("Age", func(pod *corev1.Pod) string { return s.age(pod.CreationTimestamp) })),
		wide(of("Virtual-Node", func(pod *corev1.Pod) string { return orNone(placement.PlaceOf(pod)) })),
		wide(of("Decision", func(pod *corev1.Pod) string { _, why := decision(pod); return why })),
	}
	if namespaced {
		columns = append([]column{of("Namespace", func(pod *corev1.Pod) string { return pod.Namespace })}, columns...)
	}
	return columns
}

// podStatus words how a pod fares, from the broker's point of view.
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

// decision is the score by which a pod is where it is, and why; for a pod that waits, why it does.
func decision(pod *corev1.Pod) (score, why string) {
	provider := pod.Labels[v1alpha1.ProviderLabel]
	text := pod.Annotations[v1alpha1.DecisionAnnotation]
	if provider == "" {
		if text == "" {
			text = waitsBecause(pod)
		}
		return none, orNone(text)
	}
	score, why, _ = strings.Cut(strings.TrimPrefix(text, provider+" "), ": ")
	if _, err := strconv.Atoi(score); err != nil {
		return unknown, orUnknown(text)
	}
	return score, orNone(why)
}

// waitsBecause is why no provider was found for a pod; "" if that is not said.
func waitsBecause(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1alpha1.ConditionAssigned && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// assigned is when a pod came to the provider where it is; zero if that is not said.
func assigned(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
