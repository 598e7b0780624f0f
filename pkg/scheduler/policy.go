package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// TopologyProvider is the topology key in which every provider cluster is a domain of its own.
const TopologyProvider = "provider"

// Policy says which providers a pod may go to, and which of them are better. The zero Policy, and nil, take every
// provider, and the default weights.
type Policy struct {
	Name string
	// Named are the ids of the providers that may be used; nil is all, empty is none.
	Named sets.Set[string]
	// Filter keeps a provider by being true; nil keeps all. It is made by criteria.NewFilter.
	Filter *criteria.Program
	// Score is the plugin expression's score; nil leaves that plugin out. It is made by criteria.NewScore.
	Score *criteria.Program
	// Weights in any order; nil is DefaultWeights. What ValidateWeights refuses is left out.
	Weights []Weight
	// Spread says over what the plugin spread spreads; nil is over providers.
	Spread *Spread
	// UptimeWindow is the time over which the plugin uptime looks back: an hour, 24 hours (or 0), 7 or 30 days. When
	// the uptime over it is unknown, the next shorter one counts.
	UptimeWindow time.Duration
}

// Weight says how much a score plugin counts, relative to the others; 0 is not at all.
type Weight struct {
	Plugin string
	Weight int32
}

// Spread says which providers are one domain of failure.
type Spread struct {
	// TopologyKey is the key of a provider's label, else of its attribute, or TopologyProvider; "" is TopologyProvider.
	TopologyKey string
}

// DefaultWeights returns the weights of a policy that names none.
func DefaultWeights() []Weight {
	weights := make([]Weight, 0, len(pluginNames))
	for p, w := range defaultWeights() {
		if w > 0 {
			weights = append(weights, Weight{Plugin: pluginNames[p], Weight: int32(w)})
		}
	}
	return weights
}

// Plugins returns the names of the score plugins, sorted.
func Plugins() []string { return slices.Clone(pluginNames[:]) }

// ValidateWeights reports every weight that Decide would leave out: of an unknown plugin, negative, or given twice.
func ValidateWeights(weights []Weight) error {
	var errs []error
	seen := sets.New[string]()
	for _, w := range weights {
		if !slices.Contains(pluginNames[:], w.Plugin) {
			errs = append(errs, fmt.Errorf("score plugin %q is unknown, use one of %s",
				w.Plugin, strings.Join(pluginNames[:], ", ")))
		} else if seen.Has(w.Plugin) {
			errs = append(errs, fmt.Errorf("score plugin %q has two weights, give it one", w.Plugin))
		}
		if w.Weight < 0 {
			errs = append(errs, fmt.Errorf("weight %d of score plugin %q is negative, use 0 to switch it off",
				w.Weight, w.Plugin))
		}
		seen.Insert(w.Plugin)
	}
	return errors.Join(errs...)
}
