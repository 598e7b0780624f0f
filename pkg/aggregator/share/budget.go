package share

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Budget has the free part of the sum, and of the limits of the consumers that have one. An amount is negative if more
// is used than exists.
type Budget struct {
	sum resources.Amounts
	// limits are by the consumer's id.
	limits map[string]resources.Amounts
}

// NewBudget returns the budget before any grant.
func NewBudget(sum resources.Amounts, limits map[string]resources.Amounts) Budget {
	b := Budget{sum: maps.Clone(sum), limits: make(map[string]resources.Amounts, len(limits))}
	for consumer, limit := range limits {
		b.limits[consumer] = maps.Clone(limit)
	}
	return b
}

// Take subtracts a grant to a consumer.
func (b *Budget) Take(consumer string, amounts resources.Amounts) {
	b.sum.Sub(amounts)
	b.takeFromLimit(consumer, amounts)
}

func (b *Budget) takeFromLimit(consumer string, amounts resources.Amounts) {
	b.limits[consumer].Sub(namedBy(b.limits[consumer], amounts))
}

// Release adds the resources that a consumer released.
func (b *Budget) Release(consumer string, amounts resources.Amounts) {
	b.sum.Add(amounts)
	b.releaseToLimit(consumer, amounts)
}

func (b *Budget) releaseToLimit(consumer string, amounts resources.Amounts) {
	b.limits[consumer].Add(namedBy(b.limits[consumer], amounts))
}

// TakeUsed subtracts the usage of a slice that exceeds a grant.
func (b *Budget) TakeUsed(s *Slice, granted resources.Amounts) {
	b.sum.Sub(s.Running.Excess(granted))
	b.takeFromLimit(s.Consumer, s.Counted().Excess(granted))
}

// ReleaseUsed adds it again.
func (b *Budget) ReleaseUsed(s *Slice, granted resources.Amounts) {
	b.sum.Add(s.Running.Excess(granted))
	b.releaseToLimit(s.Consumer, s.Counted().Excess(granted))
}

// left returns how much of a resource is free for a consumer. limited reports that its limit is the bound.
func (b *Budget) left(consumer string, name corev1.ResourceName) (amount int64, limited bool) {
	if room, ok := b.limits[consumer][name]; ok && room <= b.sum[name] {
		return max(0, room), true
	}
	return max(0, b.sum[name]), false
}

// AllLeft returns how much of every resource is free for a consumer.
func (b *Budget) AllLeft(consumer string) resources.Amounts {
	all := maps.Clone(b.sum)
	for name := range b.limits[consumer] {
		all[name], _ = b.left(consumer, name)
	}
	return all
}

// namedBy returns the amounts of the resources that a limit names.
func namedBy(limit, amounts resources.Amounts) resources.Amounts {
	named := make(resources.Amounts, len(limit))
	for name := range limit {
		named[name] = amounts[name]
	}
	return named
}
