package e2e

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
)

// used is the use of a pod at a provider, by the ledger.
type used struct {
	seconds, cost float64
	open          bool
}

// ledgerOf reads the use of pods by their UID and provider.
func (b *brokered) ledgerOf(ctx context.Context) (map[string]used, error) {
	store, err := ledger.OpenReadOnly(ctx, b.ledger)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	now, uses := time.Now(), map[string]used{}
	q := &ledger.Query{From: now.Add(-24 * time.Hour), To: now, Step: time.Hour}
	return uses, store.Charges(ctx, q, func(c *ledger.Charge) error {
		key := string(c.UID) + " at " + c.Provider
		u := uses[key]
		if u.cost += c.Cost; c.Resource == corev1.ResourcePods {
			u.seconds += c.Quantity * 3600
			u.open = u.open || c.Stop.IsZero()
		}
		uses[key] = u
		return nil
	})
}

// recorded tests that the ledger agrees with the pods in the API, through a move, a deletion, and a new leader.
func (b *brokered) recorded(t *testing.T) {
	ns := b.namespace(t)
	const perCPU = 3600 // Of a CPU and second: 1 EUR.
	for _, provider := range []string{"provider1", "provider2"} {
		b.restore(t, provider)
		b.decide(t, provider, func(s *brokeringv1alpha1.ProviderClusterSpec) {
			s.Prices = []brokeringv1alpha1.PriceList{{Currency: "EUR", PerHour: map[corev1.ResourceName]brokeringv1alpha1.Decimal{
				"cpu": brokeringv1alpha1.Decimal(fmt.Sprint(perCPU)),
			}}}
		})
	}
	eventually(t, patient, func(ctx context.Context) error {
		store, err := ledger.OpenReadOnly(ctx, b.ledger)
		if err != nil {
			return err
		}
		defer store.Close()
		prices, err := store.Prices(ctx)
		if err != nil {
			return err
		}
		if latest := prices.Latest(); len(latest["provider1"].Lists) == 0 || len(latest["provider2"].Lists) == 0 {
			return fmt.Errorf("the ledger has prices %v", latest)
		}
		return nil
	})
	b.create(t, ns, "web", 3, annotated(brokeringv1alpha1.FilterAnnotation, "provider.id in ['provider1', 'provider2']"))
	b.settle(t, ns, 3)
	first := b.held(t, ns)

	// web-0 is deleted while no broker leads, web-1 moves later.
	leader, err := b.BrokerLeader(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Kill(leader))
	b.revive(t, leader)
	killed := time.Now()
	require.NoError(t, b.broker.Client.Delete(t.Context(), newPod(ns, "web-0")))
	eventually(t, patient, func(ctx context.Context) error { return b.isLedByAnother(ctx, leader) })
	led := time.Now()
	require.NoError(t, b.Restart(t.Context(), leader))

	moving := first["web-1"]
	b.decide(t, moving.provider, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	var second map[string]holder
	eventually(t, patient, func(ctx context.Context) error {
		if second, err = b.holders(ctx, ns); err == nil && second["web-1"].provider == moving.provider || second["web-1"].provider == "" {
			err = fmt.Errorf("web-1 is at %q", second["web-1"].provider)
		}
		return err
	})
	b.decide(t, moving.provider, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = false })

	eventually(t, patient, func(ctx context.Context) error {
		uses, err := b.ledgerOf(ctx)
		if err != nil {
			return err
		}
		deleted, left := uses[first["web-0"].key()], uses[moving.key()]
		now, present := uses[second["web-1"].key()], time.Now()
		switch {
		case deleted.open || left.open || !now.open:
			return fmt.Errorf("open: %+v, %+v, %+v", deleted, left, now)
		// A pod that ended while no broker led is charged until the ledger was written last.
		case deleted.seconds > led.Sub(first["web-0"].assigned).Seconds() ||
			deleted.seconds < killed.Sub(first["web-0"].assigned).Seconds()-ledgerInterval.Seconds()-2:
			return fmt.Errorf("web-0 was charged for %gs; it was assigned at %s, the leader ended at %s", deleted.seconds,
				first["web-0"].assigned, killed)
		case left.seconds > second["web-1"].assigned.Sub(moving.assigned).Seconds():
			return fmt.Errorf("web-1 was charged for %gs at %s", left.seconds, moving.provider)
		case math.Abs(present.Sub(second["web-1"].assigned).Seconds()-now.seconds) > 5:
			return fmt.Errorf("web-1 was charged for %gs at %s since %s", now.seconds, second["web-1"].provider, second["web-1"].assigned)
		}
		for _, u := range []used{deleted, left, now} {
			if want := u.seconds * first["web-0"].cpus * perCPU / 3600; math.Abs(want-u.cost) > 1e-6*want {
				return fmt.Errorf("the cost is %g, want %g", u.cost, want)
			}
		}
		return nil
	})
}

// holder is a pod with its assignment, as the API shows it.
type holder struct {
	uid      types.UID
	provider string
	assigned time.Time
	cpus     float64
}

func (h holder) key() string { return string(h.uid) + " at " + h.provider }

func (b *brokered) held(t *testing.T, namespace string) map[string]holder {
	t.Helper()
	all, err := b.holders(t.Context(), namespace)
	require.NoError(t, err)
	return all
}

func (b *brokered) holders(ctx context.Context, namespace string) (map[string]holder, error) {
	var list corev1.PodList
	if err := b.broker.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	all := map[string]holder{}
	for i := range list.Items {
		p := &list.Items[i]
		if metav1.GetControllerOf(p) != nil || p.DeletionTimestamp != nil {
			continue
		}
		assigned, err := time.Parse(time.RFC3339Nano, p.Annotations[brokeringv1alpha1.AssignedAtAnnotation])
		if err != nil {
			return nil, err
		}
		all[p.Name] = holder{
			uid: p.UID, provider: p.Labels[brokeringv1alpha1.ProviderLabel], assigned: assigned,
			cpus: p.Spec.Containers[0].Resources.Requests.Cpu().AsApproximateFloat64(),
		}
	}
	return all, nil
}
