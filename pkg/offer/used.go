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
	var namespaces corev1.NamespaceList
	if err := r.client.List(ctx, &namespaces, client.HasLabels{consts.RemoteClusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("namespaces of consumers: %w", err)
	}
	consumers := make(map[string]string, len(namespaces.Items))
	for i := range namespaces.Items {
		consumers[namespaces.Items[i].Name] = placement.ConsumerOf(&namespaces.Items[i])
	}
	by := map[user]resources.Amounts{}
	count := func(pod *corev1.Pod) {
		of := user{consumers[pod.Namespace], pod.Labels[consts.CreatorLabelKey]}
		if of.consumer == "" || placement.Terminal(pod) {
			return // In other namespaces anybody may set such labels.
		}
		if by[of] == nil {
			by[of] = resources.Amounts{}
		}
		by[of].Add(resources.PodRequests(&pod.Spec))
	}
	var bound, unbound corev1.PodList
	created := client.HasLabels{consts.CreatorLabelKey}
	// The cache has the pods of the broker's Node only. Others are bound there soon, or as soon as their consumer wants it. They are
	// read first: what is bound meanwhile is in the cache then, or soon.
	if err := r.live.List(ctx, &unbound, created, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, fmt.Errorf("pods of consumers without a node: %w", err)
	}
	if err := r.client.List(ctx, &bound, created, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("pods of consumers: %w", err)
	}
	counted := sets.New[types.UID]()
	for _, pods := range [][]corev1.Pod{unbound.Items, bound.Items} {
		for i := range pods {
			if pod := &pods[i]; !counted.Has(pod.UID) {
				counted.Insert(pod.UID)
				count(pod)
			}
		}
	}
	return by, nil
}

// gone returns the users whose slices are not there any more, as slices, with what they still use. Decided have a slice that is
// decided; foreign is what Liqo, or somebody else, granted slices of other classes.
func (r *reconciler) gone(running, foreign map[user]resources.Amounts, decided sets.Set[user], now time.Time) []Slice {
	users := sets.KeySet(running).Union(sets.KeySet(r.former)).Difference(decided)
	gone := make([]Slice, 0, len(users))
	for of := range users {
		s := Slice{
			Name: types.NamespacedName{Namespace: of.consumer, Name: of.name}, Consumer: of.consumer, Gone: true,
			Running: running[of].Excess(foreign[of]), Former: r.former.observe(of, nil, now, r.cfg.Interval).Excess(foreign[of]),
		}
		if len(s.counted()) > 0 {
			gone = append(gone, s)
		}
	}
	return gone
}

// former are the grants of users, and what was granted to them a moment ago: ShadowPods that were created by that may have no pods
// yet.
type former map[user]formerGrant

type formerGrant struct {
	granted resources.Amounts
	// before is what was granted until a moment ago, and counts until then.
	before resources.Amounts
	until  time.Time
}

// observe takes in the present grant of a user, nil if it has none, and returns the most of each resource that it had within an
// interval.
func (f former) observe(of user, granted resources.Amounts, now time.Time, interval time.Duration) resources.Amounts {
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
