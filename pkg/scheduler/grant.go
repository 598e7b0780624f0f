package scheduler

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
)

// Account is the user of a consumer to whom a pod is counted. The zero Account is none: such a pod counts in no grant.
type Account struct {
	Consumer string
	// Creator is the user of one ResourceSlice, as Liqo's webhook writes it into a label of the pods; "" is not known.
	Creator string
}

// Grant is what this cluster granted a consumer. A resource that it does not name is 0, but the number of pods is then unlimited. Nil
// amounts grant nothing at all.
type Grant struct {
	// ByCreator has what the slices of each user grant, Sum what all of them grant together.
	ByCreator map[string]resources.Amounts
	Sum       resources.Amounts
}

// taken is what the pods of one account take together, at whatever provider, or the pods of all accounts of a consumer.
type taken struct {
	amounts     amounts.Flat
	assignments int
}

// takenBy returns the sums in which the pods of an account count, new ones if it has none; nil for the zero Account.
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

// count adds what an assignment takes to the sums of its account, and bounds it by what these can hold.
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

// discount subtracts what count added.
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

// AccountOf returns in which account a pod is counted; the zero Account if in none.
func (s *State) AccountOf(uid types.UID) Account { return s.assignments[uid].account }

// Budget is what the pods of a consumer leave of its grant, in a State as it is when it is asked.
type Budget struct {
	state    *State
	consumer string
	grant    *Grant
	// promised is what Take has taken, by creator, and of all together.
	promised map[string]amounts.Flat
	all      amounts.Flat
}

// Budget returns what is left of the grant of a consumer.
func (s *State) Budget(consumer string, grant *Grant) *Budget {
	return &Budget{state: s, consumer: consumer, grant: grant}
}

// Fits reports whether a pod of a creator fits into what is left.
func (b *Budget) Fits(creator string, d Demand) bool {
	_, lacks := b.lacking(creator, d)
	return !lacks
}

// Take takes what a pod requests that fits.
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

// Beyond returns of which resource a pod of a creator requests more than is left; "" if the pod fits. It does not tell how much is left:
// that changes with each other pod, and conditions quote this text.
func (b *Budget) Beyond(creator string, d Demand) string {
	lacks, found := b.lacking(creator, d)
	if !found {
		return ""
	}
	whose := "the grants of consumer " + b.consumer
	if !lacks.together {
		whose = "the grant of user " + creator + " of consumer " + b.consumer
	}
	name := corev1.ResourceName(lacks.wanted.Name)
	text := func(amount int64) string {
		quantity := resources.Quantity(name, max(amount, 0))
		return quantity.String()
	}
	return fmt.Sprintf("more than is left of %s: %s: %s requested, %s granted", whose, name, text(lacks.wanted.Amount), text(lacks.granted))
}

// lack is a resource of which too little is left.
type lack struct {
	wanted  amounts.Request
	granted int64
	// together means that it is what the slices of the consumer grant together.
	together bool
}

// lacking returns what too little is left of; false if a pod fits. Each user has the grant of its slice, as in Liqo's quotas. Pods without
// a known user take what all slices grant together; while such pods are counted, the others must fit into that as well.
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

// grantOf returns what is granted of a resource.
func grantOf(granted resources.Amounts, name corev1.ResourceName) int64 {
	amount, named := granted[name]
	if granted != nil && !named && name == corev1.ResourcePods {
		return amounts.Unlimited
	}
	return min(amount, amounts.MaxAmount)
}
