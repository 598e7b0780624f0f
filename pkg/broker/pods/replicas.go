package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// replicasIndex is the index of the pods of the cache by placement.ReplicasOf.
	replicasIndex = "brokering.liqo.io/replicas"
	// replicasRetry is how often a pod asks again that waits for its replicas, with each of which it is requeued.
	replicasRetry = time.Minute
)

// Index lets the controller find the replicas of a pod, and the pods of a claim; it must be called before the caches
// start.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, replicasIndex, indexReplicas); err != nil {
		return fmt.Errorf("index of pods by replicas: %w", err)
	}
	if err := indexer.IndexField(ctx, &corev1.Pod{}, claimsIndex, indexClaims); err != nil {
		return fmt.Errorf("index of pods by claims: %w", err)
	}
	return nil
}

func indexReplicas(o client.Object) []string {
	if pod, ok := o.(*corev1.Pod); ok {
		return []string{placement.ReplicasOf(pod)}
	}
	return nil
}

// awaitReplicas returns how long a pod must wait until it asks again whether it may move as planned; 0 when it may.
func (c *Controller) awaitReplicas(ctx context.Context, pod *corev1.Pod, virtualNode string, rules *placement.Rules,
	why eviction.Reason,
) (time.Duration, error) {
	turn, err := c.turnOf(ctx, pod, rules, why)
	if err != nil {
		return 0, err
	}
	if turn.May {
		c.requeue(c.State.NextToMove(pod))
		return 0, nil
	}
	if turn.Began {
		c.Events.Eventf(pod, corev1.EventTypeNormal, "MoveWaits", "Waiting to move away from %s: %s", virtualNode, turn.Because)
	}
	return replicasRetry, nil
}

// turnOf counts the replicas of a pod in the cache, and records whether the pod may move. Pods that leave for others do not
// come back: the next may leave when those before have left.
func (c *Controller) turnOf(ctx context.Context, pod *corev1.Pod, rules *placement.Rules, why eviction.Reason) (disruption.Turn, error) {
	c.turns.Lock()
	defer c.turns.Unlock()
	key := placement.ReplicasOf(pod)
	var list corev1.PodList
	here, among := client.InNamespace(pod.Namespace), client.MatchingFields{replicasIndex: key}
	if err := c.Client.List(ctx, &list, here, among, client.UnsafeDisableDeepCopy); err != nil {
		return disruption.Turn{}, err
	}
	replicas, now := disruption.Replicas{Namespace: pod.Namespace, Key: key}, c.Clock.Now()
	for i := range list.Items {
		if replica := &list.Items[i]; placement.Replicates(replica, now) {
			replicas.Pods = append(replicas.Pods, replica)
		}
	}
	replicas.MaxUnavailable = rules.Unavailable(len(replicas.Pods))
	if why == eviction.Reclaimed {
		replicas.Pods = slices.DeleteFunc(replicas.Pods, func(replica *corev1.Pod) bool {
			return placement.Reclaimed(replica) && placement.PlaceOf(replica) == (scheduler.Place{})
		})
	}
	return c.State.MayMove(pod, replicas), nil
}

// requeueReplicas requeues the next replica that waits to move, as a pod is available or need not move any more.
func (c *Controller) requeueReplicas(pod *corev1.Pod) {
	if placement.Available(pod) {
		c.requeue(c.State.NextToMove(pod))
	}
}

// requeueReplicasIn does so for the replicas of a pod that is gone, or has ended.
func (c *Controller) requeueReplicasIn(namespace string) {
	c.requeue(c.State.NextToMoveIn(namespace))
}

func (c *Controller) requeue(names []types.NamespacedName) {
	for _, name := range names {
		c.Queue.Add(name)
	}
}
