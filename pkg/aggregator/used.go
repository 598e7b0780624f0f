package aggregator

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// use has the requests of consumers' pods that have not ended, by the user that created them. The name of an unknown user
// is empty.
type use struct {
	// all are the requests of all pods, placed of those that are at a provider, movable of those that may leave it for
	// others: they have no volumes of claims, and are not being deleted.
	all, placed, movable map[scheduler.Account]resources.Amounts
}

// running returns the use of consumers. A consumer that deletes a ResourceSlice, or lowers its request, keeps its pods:
// Liqo removes or lowers the quota, and no pod.
func (r *reconciler) running(ctx context.Context) (*use, error) {
	var namespaces corev1.NamespaceList
	if err := r.client.List(ctx, &namespaces, client.HasLabels{consts.RemoteClusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("namespaces of consumers: %w", err)
	}
	consumers := make(map[string]string, len(namespaces.Items))
	for i := range namespaces.Items {
		consumers[namespaces.Items[i].Name] = placement.ConsumerOf(&namespaces.Items[i])
	}
	by := &use{
		all: map[scheduler.Account]resources.Amounts{}, placed: map[scheduler.Account]resources.Amounts{},
		movable: map[scheduler.Account]resources.Amounts{},
	}
	add := func(sums map[scheduler.Account]resources.Amounts, of scheduler.Account, requests resources.Amounts) {
		if sums[of] == nil {
			sums[of] = resources.Amounts{}
		}
		sums[of].Add(requests)
	}
	count := func(pod *corev1.Pod) {
		of := scheduler.Account{Consumer: consumers[pod.Namespace], Creator: pod.Labels[consts.CreatorLabelKey]}
		if of.Consumer == "" || placement.Terminal(pod) {
			return // In other namespaces any user may set such labels.
		}
		if placement.Reclaimed(pod) && placement.PlaceOf(pod) == (scheduler.Place{}) {
			return // It has left its provider for others, and waits for the grant.
		}
		requests := resources.PodRequests(&pod.Spec)
		add(by.all, of, requests)
		if placement.PlaceOf(pod) == (scheduler.Place{}) {
			return
		}
		add(by.placed, of, requests)
		if len(placement.ClaimsOf(pod)) == 0 && pod.DeletionTimestamp == nil {
			add(by.movable, of, requests)
		}
	}
	counted := sets.New[types.UID]()
	each := func(pods *corev1.PodList) {
		for i := range pods.Items {
			if pod := &pods.Items[i]; !counted.Has(pod.UID) {
				counted.Insert(pod.UID)
				count(pod)
			}
		}
	}
	// Liqo's controller sets this label on the pods that it makes from ShadowPods, with or without the creator's label.
	made := client.MatchingLabels{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue}
	// The cache has only the pods of the broker's Node. The other pods will be bound there soon, or when their consumer
	// allows it. They are read first: a pod that is bound meanwhile is in the cache by then, or soon.
	if err := inChunks(ctx, r.live, each, made, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, fmt.Errorf("pods of consumers without a node: %w", err)
	}
	var bound corev1.PodList
	if err := r.client.List(ctx, &bound, made, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("pods of consumers: %w", err)
	}
	each(&bound)
	return by, nil
}

// assignUnlabelled counts the pods whose creator is not known. Liqo's webhook labels no pods if Liqo enforces no quotas
// (enableResourceEnforcement is false, with any failurePolicy). With failurePolicy Ignore it also misses pods that are
// created while it does not answer. The pods count first in the present and recent grants of their consumer's slices,
// up to the part that its other pods do not use, and then in Liqo's own grants to it: so they count only once, together
// with their grant. The rest counts in the consumer's youngest slice that has a grant, and reduces no grant. If it did,
// more pods would exceed the grants at the next pass, until no grant was left. If the consumer has no grant, the rest
// counts as a slice that is gone, which is returned with the requests.
func assignUnlabelled(requests []share.Slice, running, foreign map[scheduler.Account]resources.Amounts) []share.Slice {
	for of, left := range running {
		if of.Creator != "" {
			continue
		}
		granted, others := slicesOf(of.Consumer, requests)
		for _, s := range slices.Concat(granted, others) {
			part := left.Min(s.Former.Excess(s.Running)) // Former includes the present grant.
			s.Running = sumOf(s.Running, part)
			left = left.Excess(part)
		}
		for other, grant := range foreign {
			if other.Consumer == of.Consumer {
				left = left.Excess(grant.Excess(running[other]))
			}
		}
		switch {
		case len(granted) > 0:
			youngest := granted[len(granted)-1]
			youngest.Running = sumOf(youngest.Running, left)
		case len(left) > 0:
			requests = append(requests, share.Slice{
				Name: types.NamespacedName{Namespace: of.Consumer}, Consumer: of.Consumer, Gone: true, Running: left,
			})
		}
	}
	return requests
}

// slicesOf returns the slices of a consumer that have a grant, and the others, each with the oldest first.
func slicesOf(consumer string, requests []share.Slice) (granted, others []*share.Slice) {
	for i := range requests {
		switch s := &requests[i]; {
		case s.Consumer != consumer:
		case s.Granted != nil:
			granted = append(granted, s)
		default:
			others = append(others, s)
		}
	}
	slices.SortFunc(granted, share.CompareAge)
	slices.SortFunc(others, share.CompareAge)
	return granted, others
}

func sumOf(a, b resources.Amounts) resources.Amounts {
	sum := resources.Amounts{}
	sum.Add(a)
	sum.Add(b)
	return sum
}

// gone returns the users whose slices no longer exist, as slices, with the amounts that they still use. Users in
// decided have a slice that is decided; foreign has the grants that Liqo, or another controller, made to slices of
// other classes. Pods without a creator have no user.
func (r *reconciler) gone(
	running, foreign map[scheduler.Account]resources.Amounts, decided sets.Set[scheduler.Account], now time.Time,
) []share.Slice {
	users := sets.KeySet(running).Union(sets.KeySet(r.former)).Difference(decided)
	gone := make([]share.Slice, 0, len(users))
	for of := range users {
		if of.Creator == "" {
			continue
		}
		s := share.Slice{
			Name: types.NamespacedName{Namespace: of.Consumer, Name: of.Creator}, Consumer: of.Consumer, Gone: true,
			Running: running[of].Excess(foreign[of]), Former: r.former.observe(of, nil, now, r.cfg.Interval).Excess(foreign[of]),
		}
		if len(s.Counted()) > 0 {
			gone = append(gone, s)
		}
	}
	return gone
}

// former has the present and recent grants of users: ShadowPods that were created under a recent grant may have no pods
// yet.
type former map[scheduler.Account]formerGrant

type formerGrant struct {
	granted resources.Amounts
	// before is the recent grant, which counts until then.
	before resources.Amounts
	until  time.Time
}

// observe records the present grant of a user, nil if it has none, and returns the most of each resource that it had
// within an interval.
func (f former) observe(of scheduler.Account, granted resources.Amounts, now time.Time, interval time.Duration) resources.Amounts {
	last := f[of]
	if !now.Before(last.until) {
		last.before = nil
	}
	if !granted.Covers(last.granted) {
		last.before, last.until = last.before.Max(last.granted), now.Add(interval)
	}
	last.granted = granted
	if f[of] = last; len(last.granted)+len(last.before) == 0 {
		delete(f, of)
	}
	return last.before.Max(granted)
}
