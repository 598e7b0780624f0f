package aggregator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// terms reads the limits of the consumers that have any, and by which shares they divide the sum: nil if no
// ConsumerCluster says so.
func (r *reconciler) terms(ctx context.Context) (
	consumers []v1alpha1.ConsumerCluster, limits map[string]resources.Amounts, shares map[string]fairshare.Terms, err error,
) {
	var list v1alpha1.ConsumerClusterList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, nil, nil, fmt.Errorf("ConsumerClusters: %w", err)
	}
	limits, terms, shared := make(map[string]resources.Amounts, len(list.Items)), make(map[string]fairshare.Terms, len(list.Items)), false
	for i := range list.Items {
		of := &list.Items[i]
		limits[of.Name] = resources.RoundDown(of.Spec.Limits)
		terms[of.Name] = fairshare.TermsOf(&of.Spec)
		shared = shared || of.Spec.IsShared()
	}
	if shared {
		shares = terms
	}
	return list.Items, limits, shares, nil
}

// usage has the present amounts of consumers, by their ids.
type usage struct {
	total resources.Amounts
	// granted is the sum of the written offers, used the sum of the requests of the pods, reclaimed the part of it that
	// others have a right to and lack.
	granted, used, reclaimed map[string]resources.Amounts
}

// usedBy adds up the amounts of all users of each consumer.
func usedBy(running map[scheduler.Account]resources.Amounts) map[string]resources.Amounts {
	by := map[string]resources.Amounts{}
	for of, amounts := range running {
		by[of.Consumer] = sumOf(by[of.Consumer], amounts)
	}
	return by
}

// grantedTo adds up the written offers to each consumer.
func grantedTo(pending []*pendingOffer) map[string]resources.Amounts {
	by := map[string]resources.Amounts{}
	for _, s := range pending {
		by[s.Consumer] = sumOf(by[s.Consumer], s.has)
	}
	return by
}

// reclaim returns, by consumer, the amounts in use beyond the grants that others have a right to and lack, and announces them
// by user. gone are the slices that are gone, and movable has the requests of the pods that can leave.
func (r *reconciler) reclaim(rules *share.Rules, entitled map[string]resources.Amounts, now *usage, pending []*pendingOffer,
	gone []share.Slice, candidates []candidate, movable map[scheduler.Account]resources.Amounts,
) map[string]resources.Amounts {
	free, excess := maps.Clone(now.total), []share.Excess(nil)
	add := func(of scheduler.Account, s *share.Slice, has resources.Amounts) {
		beyond := s.Running.Excess(has)
		free.Sub(has)
		free.Sub(beyond)
		// Pods without a known user may count in any slice of their consumer.
		can := sumOf(movable[of], movable[scheduler.Account{Consumer: of.Consumer}])
		excess = append(excess, share.Excess{Account: of, Amounts: beyond.Min(can)})
	}
	for i, s := range pending {
		add(candidates[i].user, s.Slice, s.has)
	}
	for i := range gone {
		add(scheduler.Account{Consumer: gone[i].Consumer, Creator: gone[i].Name.Name}, &gone[i], nil)
	}
	reclaimed := map[scheduler.Account]resources.Amounts{}
	if r.cfg.Guard.Missing() == "" { // Nothing would be granted.
		reclaimed = share.Reclaimed(now.total, rules.Lacking(entitled, now.granted, free), excess)
	}
	if r.cfg.Reclaim != nil {
		r.cfg.Reclaim(reclaimed)
	}
	return usedBy(reclaimed)
}

// report writes the status of the ConsumerClusters that has changed.
func (r *reconciler) report(ctx context.Context, consumers []v1alpha1.ConsumerCluster, now *usage) error {
	claims := make([]fairshare.Claim, 0, len(consumers))
	for i := range consumers {
		terms := fairshare.TermsOf(&consumers[i].Spec)
		claims = append(claims, fairshare.Claim{Terms: terms, Consumer: consumers[i].Name, Wants: terms.Guaranteed})
	}
	guaranteed := fairshare.Divide(now.total, claims)
	var failures []error
	for i := range consumers {
		of, updated := &consumers[i], consumers[i].DeepCopy()
		updated.Status = statusOf(of, claims[i].Terms, guaranteed[of.Name], now)
		if equality.Semantic.DeepEqual(of.Status, updated.Status) {
			continue
		}
		if err := r.client.Status().Patch(ctx, updated, client.MergeFrom(of)); client.IgnoreNotFound(err) != nil {
			failures = append(failures, fmt.Errorf("status of ConsumerCluster %s: %w", of.Name, err))
		}
	}
	return errors.Join(failures...)
}

// statusOf returns the status of a consumer to which these amounts are guaranteed.
func statusOf(of *v1alpha1.ConsumerCluster, terms fairshare.Terms, guaranteed resources.Amounts, now *usage,
) v1alpha1.ConsumerClusterStatus {
	granted, used := now.granted[of.Name], now.used[of.Name]
	dominant := fairshare.Of(terms, used, now.total)
	// Resources that no provider has are not shown: consumers choose their names.
	list := func(amounts resources.Amounts) corev1.ResourceList {
		shown := corev1.ResourceList{}
		for name, amount := range amounts {
			if _, there := now.total[name]; there && amount > 0 {
				shown[name] = resources.Quantity(name, amount)
			}
		}
		return shown
	}
	return v1alpha1.ConsumerClusterStatus{
		ObservedGeneration: of.Generation,
		Guaranteed:         list(guaranteed), Granted: list(granted), Used: list(used),
		Borrowed: list(granted.Excess(guaranteed)), Lent: list(guaranteed.Excess(granted)), Reclaimed: list(now.reclaimed[of.Name]),
		Share: strconv.FormatFloat(dominant.Value, 'f', 3, 64), DominantResource: dominant.Resource,
		Pods: used[corev1.ResourcePods],
	}
}
