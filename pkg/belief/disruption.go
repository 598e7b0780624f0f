package belief

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Replicas are a pod and its replicas, as the API shows them.
type Replicas struct {
	// Namespace and Key are those of the pods (placement.ReplicasOf).
	Namespace, Key string
	// Pods have the pod itself.
	Pods []*corev1.Pod
	// MaxUnavailable is how many of them may be unavailable because of planned moves.
	MaxUnavailable int
}

// replicasKey identifies replicas.
type replicasKey struct{ namespace, key string }

// MovesWaiting are the pods of a provider that wait for their replicas before they leave it.
type MovesWaiting struct {
	Pods int
	// Example is one of them and why it waits, for people.
	Example string
}

// Turn is whether a pod may be moved as planned now.
type Turn struct {
	// May is false while the pod waits; Because is why, for people.
	May     bool
	Because string
	// Began means that the pod did not wait before.
	Began bool
}

// MayMove returns whether a pod may be moved as planned: it may if fewer of its replicas than MaxUnavailable are unavailable.
// It counts as unavailable from then on, until it is assigned anew or ObserveStays: the API does not show yet that it moves. A
// pod that is not available itself may always be moved. Of two callers the later one must have read its replicas later.
func (b *Belief) MayMove(of *corev1.Pod, among Replicas) Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.recordOf(of)
	unavailable, example := b.unavailable(of, among.Pods)
	available := placement.Available(of)
	if !available || p.permits(of) || unavailable < among.MaxUnavailable {
		if available {
			p.permitted = v1alpha1.Assignment(of.Labels[v1alpha1.VirtualNodeLabel], of)
		}
		b.stopWaiting(of.UID, p)
		return Turn{May: true}
	}
	turn := Turn{Because: fmt.Sprintf("maxUnavailable is %d of %d replicas, and %d are unavailable, such as %s",
		among.MaxUnavailable, len(among.Pods), unavailable, example)}
	if unavailable == 1 {
		turn.Because = fmt.Sprintf("maxUnavailable is %d of %d replicas, and 1 is unavailable: %s",
			among.MaxUnavailable, len(among.Pods), example)
	}
	turn.Began = p.waitsBecause == ""
	p.waitsBecause, p.waitsAt = turn.Because, of.Labels[v1alpha1.VirtualNodeLabel]
	if key := (replicasKey{among.Namespace, among.Key}); p.waitsAmong != key {
		b.removeWaiting(of.UID, p)
		p.waitsAmong = key
		b.waiting[key] = append(b.waiting[key], of.UID)
	}
	return turn
}

// unavailable counts the other replicas of a pod that are unavailable, and returns the name of one, the first by name.
func (b *Belief) unavailable(of *corev1.Pod, replicas []*corev1.Pod) (count int, example string) {
	for _, replica := range replicas {
		known := b.pods[replica.UID]
		if replica.UID == of.UID || placement.Available(replica) && (known == nil || !known.permits(replica)) {
			continue
		}
		count++
		if example == "" || replica.Name < example {
			example = replica.Name
		}
	}
	return count, example
}

// permits reports whether a pod may leave where it is as planned.
func (p *pod) permits(of *corev1.Pod) bool {
	return p.permitted != "" && p.permitted == v1alpha1.Assignment(of.Labels[v1alpha1.VirtualNodeLabel], of)
}

// stopWaiting has a pod wait for its replicas no more.
func (b *Belief) stopWaiting(uid types.UID, p *pod) {
	b.removeWaiting(uid, p)
	p.waitsBecause, p.waitsAt, p.waitsAmong = "", "", replicasKey{}
}

func (b *Belief) removeWaiting(uid types.UID, p *pod) {
	left := slices.DeleteFunc(b.waiting[p.waitsAmong], func(other types.UID) bool { return other == uid })
	if len(left) == 0 {
		delete(b.waiting, p.waitsAmong)
		return
	}
	b.waiting[p.waitsAmong] = left
}

// NextToMove returns the pods to try after a pod has become available: the one that has waited longest among its replicas. If
// the pod waits itself, that is none.
func (b *Belief) NextToMove(of *corev1.Pod) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[of.UID]; len(b.waiting) == 0 || p != nil && p.waitsBecause != "" {
		return nil
	}
	return b.first(replicasKey{of.Namespace, placement.ReplicasOf(of)})
}

// NextToMoveIn returns the pods to try after any pod of a namespace is gone, or has ended: the one that has waited longest
// among each replicas.
func (b *Belief) NextToMoveIn(namespace string) (names []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.waiting {
		if key.namespace == namespace {
			names = append(names, b.first(key)...)
		}
	}
	return names
}

func (b *Belief) first(key replicasKey) []types.NamespacedName {
	for _, uid := range b.waiting[key] {
		if p := b.pods[uid]; p != nil {
			return []types.NamespacedName{p.name}
		}
	}
	return nil
}

// movesWaiting returns the pods of a provider that wait for their replicas; the example is the first by name.
func (b *Belief) movesWaiting(provider string) (waiting MovesWaiting) {
	var first types.NamespacedName
	for _, uids := range b.waiting {
		for _, uid := range uids {
			p := b.pods[uid]
			if p == nil || b.providerOf[p.waitsAt] != provider {
				continue
			}
			waiting.Pods++
			if first.Name == "" || p.name.String() < first.String() {
				first, waiting.Example = p.name, p.name.String()+": "+p.waitsBecause
			}
		}
	}
	return waiting
}
