package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what became of a history.
type result struct {
	Name string `json:"name"`
	// Kind is the fault of a history with one.
	Kind       string   `json:"kind,omitempty"`
	Faults     int      `json:"faults"`
	Pods       int      `json:"pods"`
	Events     int      `json:"events"`
	Gaps       int      `json:"gaps"`
	Violations []string `json:"violations"`
	// RecoverySeconds is how long everything took to settle after the last fault, AgainSeconds how long after the beginning of the only
	// one all pods were Ready again, for good.
	RecoverySeconds float64 `json:"recoverySeconds"`
	// Last is what was not well until then.
	Last         string  `json:"last,omitempty"`
	AgainSeconds float64 `json:"againSeconds,omitempty"`

	h *history
}

func (r result) String() string {
	var faults []string
	for _, f := range r.h.faults {
		faults = append(faults, fmt.Sprintf("%s %s for %.0fs at %.0fs", f.provider, f.kind, f.takes.Seconds(), f.at.Seconds()))
	}
	text := fmt.Sprintf("%s: %d pods, %d events (%d gaps), all well %.0fs after the last of %d faults: %s", r.Name, r.Pods, r.Events, r.Gaps,
		r.RecoverySeconds, r.Faults, strings.Join(faults, ", "))
	if r.Last != "" {
		text += fmt.Sprintf("\n  at last %.200s", r.Last)
	}
	for _, violation := range r.Violations {
		text += "\n  VIOLATION " + violation
	}
	return text
}

type results []result

// quantile is what that share of the values is at most; 0 of none.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(share*float64(len(values)-1))]
}

// print prints figures of all histories, and those of each fault that happened by itself.
func (all results) print(out io.Writer) {
	var recoveries []float64
	var faults, pods, events, gaps, violations int
	byKind, again := map[string][]float64{}, map[string][]float64{}
	for i := range all {
		r := &all[i]
		recoveries = append(recoveries, r.RecoverySeconds)
		faults, pods, events, gaps, violations = faults+r.Faults, pods+r.Pods, events+r.Events, gaps+r.Gaps, violations+len(r.Violations)
		if r.Kind != "" {
			byKind[r.Kind], again[r.Kind] = append(byKind[r.Kind], r.RecoverySeconds), append(again[r.Kind], r.AgainSeconds)
		}
	}
	fmt.Fprintf(out, "%d histories with %d faults and %d pods, %d events (%d gaps): %d violations. All was well %.0fs (median), %.0fs (p90), %.0fs (most) after the last fault\n",
		len(all), faults, pods, events, gaps, violations, quantile(recoveries, 0.5), quantile(recoveries, 0.9), quantile(recoveries, 1))
	if len(byKind) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\ttimes\tall Ready again after its beginning, median (most)\tall well after its end, median (most)")
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintf(w, "%s\t%d\t%.0fs (%.0fs)\t%.0fs (%.0fs)\n", kind, len(byKind[kind]), quantile(again[kind], 0.5), quantile(again[kind], 1),
			quantile(byKind[kind], 0.5), quantile(byKind[kind], 1))
	}
	_ = w.Flush()
}
