package score

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
)

// Weight is how much a plugin counts, relative to the others; 0 switches it off.
type Weight struct {
	Plugin string
	Weight int32
}

// weightIn returns the weight that a policy gives the plugin.
func (p *plugin) weightIn(weights []Weight) int32 {
	if weights == nil {
		return p.weight
	}
	for _, w := range weights {
		if w.Plugin == p.name && w.Weight > 0 {
			return w.Weight
		}
	}
	return 0
}

// Plugins returns the names of the plugins, sorted.
func Plugins() []string {
	names := make([]string, len(plugins))
	for i := range plugins {
		names[i] = plugins[i].name
	}
	return names
}

// ValidateWeights returns an error for every weight that a decision leaves out: of an unknown plugin, negative, or
// duplicate.
func ValidateWeights(weights []Weight) error {
	var errs []error
	known, seen := Plugins(), sets.New[string]()
	for _, w := range weights {
		if !slices.Contains(known, w.Plugin) {
			errs = append(errs, fmt.Errorf("score plugin %q is unknown, use one of %s", w.Plugin, strings.Join(known, ", ")))
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

// uptimeWindows are the windows that a policy can choose with the KPI of each, from the shortest.
var uptimeWindows = [...]struct{ name, kpi string }{
	{"1h", kpi.Uptime1h}, {"24h", kpi.Uptime24h}, {"7d", kpi.Uptime7d}, {"30d", kpi.Uptime30d},
}

// defaultWindow is the index of 24h.
const defaultWindow = 1

// windowOf returns the index of an uptime window, defaultWindow if it is unknown.
func windowOf(name string) int {
	for i := range uptimeWindows {
		if uptimeWindows[i].name == name {
			return i
		}
	}
	return defaultWindow
}

// UptimeWindows returns the windows that a policy can choose, from the shortest.
func UptimeWindows() []string {
	names := make([]string, len(uptimeWindows))
	for i := range uptimeWindows {
		names[i] = uptimeWindows[i].name
	}
	return names
}

// ValidateUptimeWindow returns an error for a window that is unknown. "" is the default.
func ValidateUptimeWindow(window string) error {
	if window == "" || uptimeWindows[windowOf(window)].name == window {
		return nil
	}
	return fmt.Errorf("uptime window %q is unknown, use one of %s", window, strings.Join(UptimeWindows(), ", "))
}
