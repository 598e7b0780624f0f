package disruption

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Replicas are a pod and its replicas, as the API shows them.
type Replicas struct {
	// Namespace and Key are the namespace and the key of the pods (placement.ReplicasOf).
	Namespace, Key string
	// Pods are the replicas, including the pod itself.
	Pods []*corev1.Pod
	// MaxUnavailable is how many of them may be unavailable because of planned moves.
	MaxUnavailable int
}

// Turn is whether a pod may be moved as planned now.
type Turn struct {
	// May is false while the pod waits; Because is why, for people.
	May     bool
	Because string
	// Began means that the pod did not wait before.
	Began bool
}

// Pod is the state of one pod among its replicas.
type Pod struct {
	name types.NamespacedName
	// permitted is the assignment (v1alpha1.Assignment) that the pod may leave as planned; "" if there is none.
	permitted string
	// because is why the pod waits for its replicas before it leaves the VirtualNode at; "" if it does not wait. among
	// is where Turns has it.
	because string
	at      scheduler.Place
	among   replicasKey
}

// NewPod returns the initial state of a pod.
func NewPod(name types.NamespacedName) Pod { return Pod{name: name} }

// Waits reports whether the pod waits for its replicas.
func (p *Pod) Waits() bool { return p.because != "" }

// Stays withdraws the permission to leave.
func (p *Pod) Stays() { p.permitted = "" }

// permits reports whether a pod may leave where it is as planned.
func (p *Pod) permits(of *corev1.Pod) bool {
	return p.permitted != "" && p.permitted == v1alpha1.Assignment(of.Labels[v1alpha1.VirtualNodeLabel], of)
}

// replicasKey identifies replicas.
type replicasKey struct{ namespace, key string }

// Turns has the pods that wait for their replicas before they move, those that have waited longest first.
type Turns struct{ waiting map[replicasKey][]*Pod }

// NewTurns returns Turns for which no pod waits.
func NewTurns() *Turns { return &Turns{waiting: map[replicasKey][]*Pod{}} }

// Waiting returns how many pods wait.
func (t *Turns) Waiting() (pods int) {
	for _, among := range t.waiting {
		pods += len(among)
	}
	return pods
}

// MayMove returns whether a pod may be moved as planned: it may if fewer of its replicas than MaxUnavailable are
// unavailable. It counts as unavailable from then on, until it is assigned again or Stays: the API does not show yet
// that it moves. A pod that is not available itself may always be moved. known returns the state of another pod, nil if
// there is none.
func (t *Turns) MayMove(p *Pod, of *corev1.Pod, among Replicas, known func(types.UID) *Pod) Turn {
	unavailable, example := unavailable(of, among.Pods, known)
	available := placement.Available(of)
	if !available || p.permits(of) || unavailable < among.MaxUnavailable {
		if available {
			p.permitted = v1alpha1.Assignment(of.Labels[v1alpha1.VirtualNodeLabel], of)
		}
		t.StopWaiting(p)
		return Turn{May: true}
	}
	turn := Turn{Because: fmt.Sprintf("maxUnavailable is %d of %d replicas, and %d are unavailable, such as %s",
		among.MaxUnavailable, len(among.Pods), unavailable, example)}
	if unavailable == 1 {
		turn.Because = fmt.Sprintf("maxUnavailable is %d of %d replicas, and 1 is unavailable: %s",
			among.MaxUnavailable, len(among.Pods), example)
	}
	turn.Began = !p.Waits()
	p.because, p.at = turn.Because, placement.AssignedTo(of)
	if key := (replicasKey{among.Namespace, among.Key}); p.among != key {
		t.remove(p)
		p.among = key
		t.waiting[key] = append(t.waiting[key], p)
	}
	return turn
}

// unavailable counts the other replicas of a pod that are unavailable, and returns the name of one, the first by name.
func unavailable(of *corev1.Pod, replicas []*corev1.Pod, known func(types.UID) *Pod) (count int, example string) {
	for _, replica := range replicas {
		if replica.UID == of.UID {
			continue
		}
		if p := known(replica.UID); placement.Available(replica) && (p == nil || !p.permits(replica)) {
			continue
		}
		count++
		if example == "" || replica.Name < example {
			example = replica.Name
		}
	}
	return count, example
}

// StopWaiting has a pod wait for its replicas no more.
func (t *Turns) StopWaiting(p *Pod) {
	t.remove(p)
	p.because, p.at, p.among = "", scheduler.Place{}, replicasKey{}
}

func (t *Turns) remove(p *Pod) {
	left := slices.DeleteFunc(t.waiting[p.among], func(other *Pod) bool { return other == p })
	if len(left) == 0 {
		delete(t.waiting, p.among)
		return
	}
	t.waiting[p.among] = left
}

// Next returns the pods to try after a pod has become available: the one that has waited longest among its replicas.
func (t *Turns) Next(of *corev1.Pod) []types.NamespacedName {
	if len(t.waiting) == 0 {
		return nil
	}
	return t.first(replicasKey{of.Namespace, placement.ReplicasOf(of)})
}

// NextIn returns the pods to try after any pod of a namespace is gone, or has ended: the one that has waited longest
// among each replicas.
func (t *Turns) NextIn(namespace string) (names []types.NamespacedName) {
	for key := range t.waiting {
		if key.namespace == namespace {
			names = append(names, t.first(key)...)
		}
	}
	return names
}

func (t *Turns) first(key replicasKey) []types.NamespacedName {
	if among := t.waiting[key]; len(among) > 0 {
		return []types.NamespacedName{among[0].name}
	}
	return nil
}

// Waiting are the pods of a provider that wait for their replicas before they leave it.
type Waiting struct {
	Pods int
	// Example is one of them and why it waits, for people.
	Example string
}

// At returns the pods that wait at VirtualNodes for which is reports true; the example is the first by name.
func (t *Turns) At(is func(at scheduler.Place) bool) (waiting Waiting) {
	var first types.NamespacedName
	for _, among := range t.waiting {
		for _, p := range among {
			if !is(p.at) {
				continue
			}
			waiting.Pods++
			if first.Name == "" || p.name.String() < first.String() {
				first, waiting.Example = p.name, p.name.String()+": "+p.because
			}
		}
	}
	return waiting
}
