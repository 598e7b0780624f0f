package offer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	"github.com/liqotech/liqo/pkg/utils/resource"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// user is the identity of a ResourceSlice, with which its consumer creates ShadowPods.
type user struct{ consumer, name string }

// creatorOf returns the user of a slice: the common name of its certificate, as Liqo's webhook writes it into a label of the
// ShadowPods (pkg/webhooks/shadowpod), which their pods have, too. Liqo's quota of the slice counts the pods of that label.
func creatorOf(slice *authv1beta1.ResourceSlice) user {
	return user{consumerOf(slice), resource.EscapeLabel(authentication.CommonNameResourceSliceCSR(slice))}
}

// running returns what the pods of consumers request that have not ended, by the user that created them. A consumer that deletes a
// ResourceSlice, or lowers its request, keeps its pods: Liqo removes or lowers the quota, and no pod.
func (r *reconciler) running(ctx context.Context) (map[user]resources.Amounts, error) {
	by := map[user]resources.Amounts{}
	count := func(pod *corev1.Pod) {
		of := user{pod.Labels[forge.LiqoOriginClusterIDKey], pod.Labels[consts.CreatorLabelKey]}
		if of.consumer == "" || placement.Terminal(pod) {
			return
		}
		if by[of] == nil {
			by[of] = resources.Amounts{}
		}
		by[of].Add(resources.PodRequests(&pod.Spec))
	}
	var bound, unbound corev1.PodList
	created := client.HasLabels{consts.CreatorLabelKey}
	if err := r.client.List(ctx, &bound, created, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("pods of consumers: %w", err)
	}
	// The cache has those of the broker's Node only. Others are bound there soon, or as soon as their consumer wants it.
	if err := r.live.List(ctx, &unbound, created, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, fmt.Errorf("pods of consumers without a node: %w", err)
	}
	for i := range bound.Items {
		if bound.Items[i].Spec.NodeName != "" {
			count(&bound.Items[i])
		}
	}
	for i := range unbound.Items {
		count(&unbound.Items[i])
	}
	return by, nil
}

// gone returns the users whose slices are not there any more, as slices, with what they still use. The others have one.
func (r *reconciler) gone(running map[user]resources.Amounts, others sets.Set[user], now time.Time) []Slice {
	users := sets.KeySet(running).Union(sets.KeySet(r.former)).Difference(others)
	gone := make([]Slice, 0, len(users))
	for of := range users {
		s := Slice{
			Name: types.NamespacedName{Namespace: of.consumer, Name: of.name}, Consumer: of.consumer, Gone: true,
			Running: running[of], Former: r.former.observe(of, nil, now, r.cfg.Interval),
		}
		if len(s.counted()) > 0 {
			gone = append(gone, s)
		}
	}
	return gone
}

// former are the grants of users, and those that ended or shrank a moment ago: ShadowPods that were created by them may have no
// pods yet.
type former map[user]formerGrant

type formerGrant struct {
	amounts resources.Amounts
	// until is zero while it is the grant.
	until time.Time
}

// observe takes in the present grant of a user, nil if it has none, and returns the largest one within an interval.
func (f former) observe(of user, granted resources.Amounts, now time.Time, interval time.Duration) resources.Amounts {
	last := f[of]
	switch {
	case granted.Covers(last.amounts), !last.until.IsZero() && !now.Before(last.until):
		last = formerGrant{amounts: granted}
	case last.until.IsZero():
		last.until = now.Add(interval)
	}
	if f[of] = last; len(last.amounts) == 0 {
		delete(f, of)
	}
	return last.amounts
}
