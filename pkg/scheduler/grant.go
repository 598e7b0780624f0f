package scheduler

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
)

// Account is the user of a consumer whose grant counts a pod. The zero Account is none: no grant counts such a pod.
type Account struct {
	Consumer string
	// Creator is the user of one ResourceSlice, as Liqo's webhook writes it into a label of the pods; "" is unknown.
	Creator string
}

// Own is the account of the pods of this cluster, which no grant bounds.
var Own = Account{Creator: "of this cluster"}

// Grant is the grant of this cluster to a consumer. A resource that it does not name is 0, but the number of pods is
// then unlimited. Nil amounts grant nothing at all.
type Grant struct {
	// ByCreator has the grants of each user's slices, Sum the total of all slices.
	ByCreator map[string]resources.Amounts
	Sum       resources.Amounts
}

// taken is the total of the pods of one account, at any provider, or of all accounts of a consumer.
type taken struct {
	amounts     amounts.Flat
	assignments int
}

// takenBy returns the sums that count the pods of an account, new ones if it has none; nil for the zero Account.
func (s *State) takenBy(a Account) (of, all *taken) {
	if a == (Account{}) {
		return nil, nil
	}
	if of = s.accounts[a]; of == nil {
		of = &taken{}
		s.accounts[a] = of
	}
	if all = s.consumers[a.Consumer]; all == nil {
		all = &taken{}
		s.consumers[a.Consumer] = all
	}
	return of, all
}

// count adds the requests of an assignment to the sums of its account, and bounds them so that the sums do not
// overflow.
func (s *State) count(kept *assignment) {
	of, all := s.takenBy(kept.account)
	if of == nil {
		return
	}
	of.assignments++
	all.assignments++
	for i := range kept.requests {
		r := &kept.requests[i]
		r.Amount = min(r.Amount, math.MaxInt64-all.amounts.Of(r.Number))
		of.amounts, all.amounts = of.amounts.Add(r.Number, r.Amount), all.amounts.Add(r.Number, r.Amount)
	}
}

// discount subtracts the requests that count added.
func (s *State) discount(kept *assignment) {
	of, all := s.takenBy(kept.account)
	if of == nil {
		return
	}
	for _, r := range kept.requests {
		of.amounts, all.amounts = of.amounts.Add(r.Number, -r.Amount), all.amounts.Add(r.Number, -r.Amount)
	}
	if of.assignments--; of.assignments == 0 {
		delete(s.accounts, kept.account)
	}
	if all.assignments--; all.assignments == 0 {
		delete(s.consumers, kept.account.Consumer)
	}
}

// AccountOf returns the account that counts a holder; the zero Account if none does.
func (s *State) AccountOf(of Holder) Account { return s.assignments[of].account }

// UsedBy returns the requests of the counted pods of an account, which the caller may change.
func (s *State) UsedBy(account Account) resources.Amounts { return s.used(s.accounts[account]) }

// UsedByConsumer returns the requests of the counted pods of all accounts of a consumer, which the caller may change. The
// consumer "" is this cluster (Own).
func (s *State) UsedByConsumer(consumer string) resources.Amounts {
	return s.used(s.consumers[consumer])
}

func (s *State) used(of *taken) resources.Amounts {
	if of == nil {
		return resources.Amounts{}
	}
	return s.table.Named(of.amounts)
}

// Granted returns the sum of the grants of all providers, without resources that one grants without a limit.
func (s *State) Granted() resources.Amounts {
	var sum amounts.Flat
	for _, p := range s.providers {
		for i := range p.slices {
			sum = amounts.Sum(sum, p.slices[i].granted)
		}
	}
	for number, amount := range sum {
		if amount == amounts.Unlimited {
			sum[number] = 0
		}
	}
	return s.table.Named(sum)
}

// Budget is the part of a consumer's grant that its pods leave free, in the State at the time of the call.
type Budget struct {
	state    *State
	consumer string
	grant    *Grant
	// promised has the requests passed to Take, by creator; all is their total.
	promised map[string]amounts.Flat
	all      amounts.Flat
}

// Budget returns the free part of a consumer's grant.
func (s *State) Budget(consumer string, grant *Grant) *Budget {
	return &Budget{state: s, consumer: consumer, grant: grant}
}

// Fits reports whether a pod of a creator fits into the budget.
func (b *Budget) Fits(creator string, d Demand) bool {
	_, lacks := b.lacking(creator, d)
	return !lacks
}

// Take subtracts the requests of a pod that fits.
func (b *Budget) Take(creator string, d Demand) {
	if b.promised == nil {
		b.promised = map[string]amounts.Flat{}
	}
	of := b.promised[creator]
	for _, wanted := range d {
		if number, known := numberOf(&b.state.table, wanted); known {
			of, b.all = of.Add(number, wanted.Amount), b.all.Add(number, wanted.Amount)
		}
	}
	b.promised[creator] = of
}

// Beyond returns the resource of which a pod of a creator requests more than is free; "" if the pod fits. It does not
// return the free amount, which changes with each other pod: conditions quote this text.
func (b *Budget) Beyond(creator string, d Demand) string {
	lacks, found := b.lacking(creator, d)
	if !found {
		return ""
	}
	whose := "grants of consumer " + b.consumer
	if !lacks.together {
		whose = "grant of user " + creator + " of consumer " + b.consumer
	}
	name := corev1.ResourceName(lacks.wanted.Name)
	text := func(amount int64) string {
		quantity := resources.Quantity(name, max(amount, 0))
		return quantity.String()
	}
	return fmt.Sprintf("exceeds the remaining %s: %s: %s requested, %s granted",
		whose, name, text(lacks.wanted.Amount), text(lacks.granted))
}

// lack is a resource of which not enough is free.
type lack struct {
	wanted  amounts.Request
	granted int64
	// together means that granted is the total of all slices of the consumer.
	together bool
}

// lacking returns the first resource of which not enough is free; false if a pod fits. Each user has the grant of its
// slice, as in Liqo's quotas. Pods without a known user use the total of all slices; while such pods are counted, the
// others must fit into that total too.
func (b *Budget) lacking(creator string, d Demand) (lack, bool) {
	unknown := Account{Consumer: b.consumer}
	if creator != "" {
		of := b.state.accounts[Account{Consumer: b.consumer, Creator: creator}]
		lacks, found := b.lackingOf(b.grant.ByCreator[creator], of, b.promised[creator], d)
		if found || b.state.accounts[unknown] == nil && b.promised[""] == nil {
			return lacks, found
		}
	}
	lacks, found := b.lackingOf(b.grant.Sum, b.state.consumers[b.consumer], b.all, d)
	lacks.together = true
	return lacks, found
}

func (b *Budget) lackingOf(granted resources.Amounts, of *taken, promised amounts.Flat, d Demand) (lack, bool) {
	for _, wanted := range d {
		amount, used := grantOf(granted, corev1.ResourceName(wanted.Name)), int64(0)
		if number, known := numberOf(&b.state.table, wanted); known {
			used = promised.Of(number)
			if of != nil {
				used = resources.Sum(used, of.amounts.Of(number))
			}
		}
		if amount != amounts.Unlimited && wanted.Amount > amount-used {
			return lack{wanted: wanted, granted: amount}, true
		}
	}
	return lack{}, false
}

// grantOf returns the granted amount of a resource.
func grantOf(granted resources.Amounts, name corev1.ResourceName) int64 {
	amount, named := granted[name]
	if granted != nil && !named && name == corev1.ResourcePods {
		return amounts.Unlimited
	}
	return min(amount, amounts.MaxAmount)
}
