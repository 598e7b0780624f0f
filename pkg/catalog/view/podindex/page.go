package podindex

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/informers"
)

// Filter selects pods. Empty fields select all.
type Filter struct {
	Namespace, Provider, Consumer, Phase string
	// Text is a part of "namespace/pod" or of the id of the provider or the consumer, in lower case.
	Text string
	// Waiting selects the pods that wait for a provider.
	Waiting bool
}

func (f *Filter) matches(p *Pod) bool {
	s := &p.Shown
	return (f.Namespace == "" || f.Namespace == s.Namespace) && (f.Provider == "" || f.Provider == s.Provider) &&
		(f.Consumer == "" || f.Consumer == s.Consumer) && (f.Phase == "" || f.Phase == s.Phase) &&
		(!f.Waiting || p.waiting()) && (f.Text == "" || strings.Contains(p.text, f.Text))
}

// smallest returns the smallest tree that has all pods of a filter, nil if there are none, and whether all pods in it
// match.
func (x *Index) smallest(f *Filter) (index *tree, exact bool) {
	index, exact = x.all, f.Phase == "" && f.Text == ""
	conditions := 0
	consider := func(other *tree) {
		if conditions++; other == nil || index != nil && other.Len() < index.Len() {
			index = other
		}
	}
	if f.Namespace != "" {
		consider(x.byNamespace[f.Namespace])
	}
	if f.Provider != "" {
		consider(x.byProvider[f.Provider])
	}
	if f.Consumer != "" {
		consider(x.byConsumer[f.Consumer])
	}
	if f.Waiting {
		consider(x.waiting)
	}
	return index, exact && conditions <= 1
}

// Page returns up to limit pods (all if 0) after a name, the number of all that match, and whether there are more.
func (x *Index) Page(f *Filter, after types.NamespacedName, limit int) (pods []*Pod, total int, more bool) {
	index, exact := x.smallest(f)
	if index == nil {
		return nil, 0, false
	}
	begin := types.NamespacedName{}
	if exact {
		total, begin = index.Len(), after // Nothing needs to be counted.
	}
	index.AscendGreaterOrEqual(at(begin), func(p *Pod) bool {
		if !exact {
			if !f.matches(p) {
				return true
			}
			total++
		}
		if informers.Compare(p.Name(), after) <= 0 {
			return true
		}
		if limit > 0 && len(pods) == limit {
			more = true
			return !exact
		}
		pods = append(pods, p)
		return true
	})
	return pods, total, more
}
