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

// running returns what the pods of consumers request that have not ended, by the user that created them. The name of a user that is
// not known is empty. A consumer that deletes a ResourceSlice, or lowers its request, keeps its pods: Liqo removes or lowers the
// quota, and no pod.
func (r *reconciler) running(ctx context.Context) (map[scheduler.Account]resources.Amounts, error) {
	var namespaces corev1.NamespaceList
	if err := r.client.List(ctx, &namespaces, client.HasLabels{consts.RemoteClusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("namespaces of consumers: %w", err)
	}
	consumers := make(map[string]string, len(namespaces.Items))
	for i := range namespaces.Items {
		consumers[namespaces.Items[i].Name] = placement.ConsumerOf(&namespaces.Items[i])
	}
	by := map[scheduler.Account]resources.Amounts{}
	count := func(pod *corev1.Pod) {
		of := scheduler.Account{Consumer: consumers[pod.Namespace], Creator: pod.Labels[consts.CreatorLabelKey]}
		if of.Consumer == "" || placement.Terminal(pod) {
			return // In other namespaces any user may set such labels.
		}
		if by[of] == nil {
			by[of] = resources.Amounts{}
		}
		by[of].Add(resources.PodRequests(&pod.Spec))
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
	// Liqo's controller sets this label of the pods that it makes of ShadowPods, whether or not they have that of their creator.
	made := client.MatchingLabels{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue}
	// The cache has the pods of the broker's Node only. Others are bound there soon, or as soon as their consumer wants it. They are
	// read first: what is bound meanwhile is in the cache then, or soon.
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
// (enableResourceEnforcement is false, whatever the failurePolicy), and none that enter while it does not answer, if its failurePolicy
// is Ignore. They count in what the slices of their consumer have, and had a moment ago, as far as its other pods do not use it, and
// then in what Liqo granted it: such pods count once, with their grant. The rest counts in its youngest slice that has a grant, where
// it reduces none. If it did, more pods would be beyond the grants at the next pass, until nothing was left of them. If the consumer
// has no grant, the rest counts as that of a slice that is gone, which is returned with the requests.
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

// slicesOf returns the slices of a consumer that have a grant, and the others, each the oldest first.
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

// gone returns the users whose slices are not there any more, as slices, with what they still use. Decided have a slice that is
// decided; foreign is what Liqo, or another controller, granted slices of other classes. Pods without a creator
// are not of a user.
func (r *reconciler) gone(running, foreign map[scheduler.Account]resources.Amounts, decided sets.Set[scheduler.Account], now time.Time) []share.Slice {
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

// former are the grants of users, and what was granted to them a moment ago: ShadowPods that were created by that may have no pods
// yet.
type former map[scheduler.Account]formerGrant

type formerGrant struct {
	granted resources.Amounts
	// before is what was granted until a moment ago, and counts until then.
	before resources.Amounts
	until  time.Time
}

// observe takes in the present grant of a user, nil if it has none, and returns the most of each resource that it had within an
// interval.
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
