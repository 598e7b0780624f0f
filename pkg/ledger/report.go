package ledger

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

// Charge is the use of one resource by one pod at one provider within a time of at most one step of a report.
type Charge struct {
	*Segment

	From, To time.Time
	Resource corev1.ResourceName
	// Quantity is in units of the price (cores, GiB), times hours. Price is of one of them; it is 0, without a currency,
	// if it is unknown.
	Quantity float64
	Price    price.Amount
	Cost     float64
	// Priced is false if the provider had no price of any resource.
	Priced bool
}

// Query selects a part of a ledger.
type Query struct {
	// From is inclusive, To exclusive.
	From, To time.Time
	// Consumer is the id of a cluster, or "" for the broker's own; nil is all.
	Consumer *string
	// Step divides times at its multiples (UTC); 0 does not.
	Step time.Duration
}

// Charges calls each with the charges that a query selects, by the start of their segments. Segments that are open count
// until the ledger was written last.
func (s *Store) Charges(ctx context.Context, q *Query, each func(*Charge) error) error {
	prices, err := s.Prices(ctx)
	if err != nil {
		return err
	}
	alive, err := s.Alive(ctx)
	if err != nil {
		return err
	}
	to := earlier(q.To, alive)
	return s.Segments(ctx, q.From, to, q.Consumer, func(segment *Segment) error {
		stop := to
		if !segment.Stop.IsZero() {
			stop = earlier(stop, segment.Stop)
		}
		return prices.charges(segment, later(q.From, segment.Start), stop, q.Step, each)
	})
}

// Charges calls each with the charges of a segment in a time.
func (p *Prices) Charges(s *Segment, from, to time.Time, each func(*Charge)) {
	_ = p.charges(s, from, to, 0, func(c *Charge) error { each(c); return nil })
}

func (p *Prices) charges(s *Segment, from, to time.Time, step time.Duration, each func(*Charge) error) error {
	names := slices.Sorted(maps.Keys(s.Requests))
	for from.Before(to) {
		until := to
		if step > 0 {
			until = earlier(until, from.UTC().Truncate(step).Add(step))
		}
		list, until := p.at(s.Provider, from, until)
		for _, name := range names {
			if err := each(charge(s, name, list, from, until)); err != nil {
				return err
			}
		}
		from = until
	}
	return nil
}

func charge(s *Segment, name corev1.ResourceName, list *price.List, from, to time.Time) *Charge {
	c := &Charge{
		Segment: s, From: from, To: to, Resource: name,
		Quantity: price.Units(name, s.Requests[name]) * to.Sub(from).Hours(), Priced: list != nil,
	}
	if list != nil {
		c.Price = price.Amount{Value: list.PerHour[name], Currency: list.Currency}
		c.Cost = c.Quantity * c.Price.Value
	}
	return c
}
