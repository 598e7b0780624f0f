package federation

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// placed is a pod of the broker's node. It is never changed.
type placed struct {
	shown api.Placement
	// ended says whether the pod has ended for good, so that it waits no more and does not count as anybody's load.
	ended bool
	// text is what is searched.
	text string
}

func (p *placed) name() types.NamespacedName {
	return types.NamespacedName{Namespace: p.shown.Namespace, Name: p.shown.Pod}
}

func (p *placed) waits() bool { return p.shown.Provider == "" && !p.ended }

// from is the same pod, of another consumer.
func (p *placed) from(consumer string) *placed {
	moved := *p
	moved.shown.Consumer = consumer
	moved.text = textOf(&moved.shown)
	return &moved
}

// placedOf reads where a pod of a consumer is; "" is the broker's own cluster.
func placedOf(pod *corev1.Pod, consumer string) *placed {
	p := &placed{ended: placement.Terminal(pod), shown: api.Placement{
		Namespace: pod.Namespace, Pod: pod.Name, Consumer: consumer,
		VirtualNode: pod.Labels[v1alpha1.VirtualNodeLabel],
		MovingFrom:  pod.Annotations[v1alpha1.MovingFromAnnotation],
		Decision:    pod.Annotations[v1alpha1.DecisionAnnotation],
		Phase:       string(cmp.Or(pod.Status.Phase, corev1.PodPending)),
		Ready:       conditionOf(pod, corev1.PodReady).Status == corev1.ConditionTrue,
		Created:     pod.CreationTimestamp.UTC(),
	}}
	shown := &p.shown
	if shown.VirtualNode != "" {
		shown.Provider = pod.Labels[v1alpha1.ProviderLabel]
		shown.Score = scoreOf(shown.Decision)
		if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation]); err == nil {
			at = at.UTC()
			shown.Since = &at
		}
	} else if assigned := conditionOf(pod, v1alpha1.ConditionAssigned); shown.MovingFrom == "" && !p.ended &&
		assigned.Status == corev1.ConditionFalse {
		// What it says of a pod that is assigned, or is just leaving, is from the last time that it waited.
		shown.Message = assigned.Message
	}
	p.text = textOf(shown)
	return p
}

// textOf is what is searched of a placement.
func textOf(p *api.Placement) string {
	return strings.ToLower(p.Namespace + "/" + p.Pod + "\n" + p.Provider + "\n" + p.Consumer)
}

// scoreOf reads the score in a decision: "provider2 84: price 29, spread 29, free 26".
func scoreOf(decision string) *int {
	head, _, _ := strings.Cut(decision, ":")
	score, err := strconv.Atoi(head[strings.LastIndexByte(head, ' ')+1:])
	if err != nil {
		return nil
	}
	return &score
}

// conditionOf is the zero condition if the pod has none of that type.
func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return pod.Status.Conditions[i]
		}
	}
	return corev1.PodCondition{}
}
