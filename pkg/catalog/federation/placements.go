package federation

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/follow"
)

// degree of the trees: how many items one node of them has, about. It trades the depth of the large ones for the size of
// those that hold a few pods of a namespace.
const degree = 16

// tree holds pods by namespace and name.
type tree = btree.BTreeG[*placed]

// placements are the pods of the node, in indexes by whatever they are asked for.
type placements struct {
	all, waiting                        *tree
	byNamespace, byProvider, byConsumer map[string]*tree
	// flows counts the pods that have not ended, by consumer and provider.
	flows map[string]map[string]int
	nodes *btree.FreeListG[*placed]
}

func newPlacements() *placements {
	p := &placements{
		byNamespace: map[string]*tree{}, byProvider: map[string]*tree{}, byConsumer: map[string]*tree{},
		flows: map[string]map[string]int{}, nodes: btree.NewFreeListG[*placed](btree.DefaultFreeListSize),
	}
	p.all, p.waiting = p.newTree(), p.newTree()
	return p
}

func (p *placements) newTree() *tree {
	return btree.NewWithFreeListG(degree, func(x, y *placed) bool { return follow.Compare(x.name(), y.name()) < 0 }, p.nodes)
}

// at is something to look for in a tree.
func at(name types.NamespacedName) *placed {
	return &placed{shown: api.Placement{Namespace: name.Namespace, Pod: name.Name}}
}

// get returns nil if there is no such pod.
func (p *placements) get(name types.NamespacedName) *placed {
	found, _ := p.all.Get(at(name))
	return found
}

// set puts a pod in place of what there was of its name, which it returns, or nil.
func (p *placements) set(fresh *placed) *placed {
	before := p.remove(fresh.name())
	p.all.ReplaceOrInsert(fresh)
	p.insert(p.byNamespace, fresh.shown.Namespace, fresh)
	p.insert(p.byProvider, fresh.shown.Provider, fresh)
	p.insert(p.byConsumer, fresh.shown.Consumer, fresh)
	if fresh.waits() {
		p.waiting.ReplaceOrInsert(fresh)
	}
	p.count(fresh, 1)
	return before
}

// remove returns what there was of that name, or nil.
func (p *placements) remove(name types.NamespacedName) *placed {
	before, ok := p.all.Delete(at(name))
	if !ok {
		return nil
	}
	remove(p.byNamespace, before.shown.Namespace, before)
	remove(p.byProvider, before.shown.Provider, before)
	remove(p.byConsumer, before.shown.Consumer, before)
	p.waiting.Delete(before)
	p.count(before, -1)
	return before
}

// insert adds a pod to the tree of a key; nobody asks for those that have none.
func (p *placements) insert(index map[string]*tree, key string, fresh *placed) {
	if key == "" {
		return
	}
	if index[key] == nil {
		index[key] = p.newTree()
	}
	index[key].ReplaceOrInsert(fresh)
}

func remove(index map[string]*tree, key string, before *placed) {
	if key == "" {
		return
	}
	if index[key].Delete(before); index[key].Len() == 0 {
		delete(index, key)
	}
}

func (p *placements) count(of *placed, change int) {
	if of.ended {
		return
	}
	consumer, provider := of.shown.Consumer, of.shown.Provider
	if p.flows[consumer] == nil {
		p.flows[consumer] = map[string]int{}
	}
	p.flows[consumer][provider] += change
	if p.flows[consumer][provider] == 0 {
		delete(p.flows[consumer], provider)
	}
	if len(p.flows[consumer]) == 0 {
		delete(p.flows, consumer)
	}
}

// wanted is a PlacementQuery together with its Scope.
type wanted struct {
	namespace, provider, consumer, phase, text string
	waiting                                    bool
}

// wantedOf is false if nothing of what is asked for is in the scope.
func wantedOf(q *PlacementQuery) (wanted, bool) {
	w := wanted{
		namespace: q.Namespace, provider: q.Provider, consumer: q.Consumer,
		phase: q.Phase, text: strings.ToLower(q.Text), waiting: q.Waiting,
	}
	if q.Scope.All {
		return w, true
	}
	if q.Scope.Consumer == "" && q.Scope.Namespace == "" {
		return w, false
	}
	return w, within(q.Scope.Consumer, &w.consumer) && within(q.Scope.Namespace, &w.namespace)
}

// within narrows what is asked for to what is in scope; it is false if the two have nothing in common.
func within(scope string, asked *string) bool {
	if scope == "" {
		return true
	}
	if *asked != "" && *asked != scope {
		return false
	}
	*asked = scope
	return true
}

func (w *wanted) matches(p *placed) bool {
	s := &p.shown
	return (w.namespace == "" || w.namespace == s.Namespace) && (w.provider == "" || w.provider == s.Provider) &&
		(w.consumer == "" || w.consumer == s.Consumer) && (w.phase == "" || w.phase == s.Phase) &&
		(!w.waiting || p.waits()) && (w.text == "" || strings.Contains(p.text, w.text))
}

// smallest is the index with the least that must be looked at, nil if there is nothing, and whether all of it matches.
func (p *placements) smallest(w *wanted) (index *tree, exact bool) {
	index, exact = p.all, w.phase == "" && w.text == ""
	conditions := 0
	consider := func(other *tree) {
		if conditions++; other == nil || index != nil && other.Len() < index.Len() {
			index = other
		}
	}
	if w.namespace != "" {
		consider(p.byNamespace[w.namespace])
	}
	if w.provider != "" {
		consider(p.byProvider[w.provider])
	}
	if w.consumer != "" {
		consider(p.byConsumer[w.consumer])
	}
	if w.waiting {
		consider(p.waiting)
	}
	return index, exact && conditions <= 1
}

// page returns up to limit pods (all if 0) after a name, how many match in all, and whether there are more.
func (p *placements) page(w *wanted, after types.NamespacedName, limit int) (items []*placed, total int, more bool) {
	index, exact := p.smallest(w)
	if index == nil {
		return nil, 0, false
	}
	begin := types.NamespacedName{}
	if exact {
		// How many there are is known without counting.
		total, begin = index.Len(), after
	}
	index.AscendGreaterOrEqual(at(begin), func(item *placed) bool {
		if !exact {
			if !w.matches(item) {
				return true
			}
			total++
		}
		if follow.Compare(item.name(), after) <= 0 {
			return true
		}
		if limit > 0 && len(items) == limit {
			more = true
			return !exact
		}
		items = append(items, item)
		return true
	})
	return items, total, more
}

// flowsIn counts the pods in a scope.
func (p *placements) flowsIn(s Scope) []api.Flow {
	flows := []api.Flow{}
	add := func(consumer string, byProvider map[string]int) {
		for provider, pods := range byProvider {
			flows = append(flows, api.Flow{Consumer: consumer, Provider: provider, Pods: pods})
		}
	}
	switch {
	case s.All:
		for consumer, byProvider := range p.flows {
			add(consumer, byProvider)
		}
	case s.Namespace != "":
		// A namespace is one consumer's, or nobody's.
		byProvider, consumer := map[string]int{}, ""
		if index := p.byNamespace[s.Namespace]; index != nil {
			index.Ascend(func(item *placed) bool {
				if s.sees(&item.shown) && !item.ended {
					byProvider[item.shown.Provider]++
					consumer = item.shown.Consumer
				}
				return true
			})
		}
		add(consumer, byProvider)
	case s.Consumer != "":
		add(s.Consumer, p.flows[s.Consumer])
	}
	slices.SortFunc(flows, func(x, y api.Flow) int {
		return cmp.Or(strings.Compare(x.Consumer, y.Consumer), strings.Compare(x.Provider, y.Provider))
	})
	return flows
}
