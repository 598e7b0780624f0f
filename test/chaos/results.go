package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is the result of a history.
type Result struct {
	Name string `json:"name"`
	// Kind is the fault of a history with only one fault.
	Kind       string   `json:"kind,omitempty"`
	Faults     int      `json:"faults"`
	Pods       int      `json:"pods"`
	Events     int      `json:"events"`
	Gaps       int      `json:"gaps"`
	Violations []string `json:"violations"`
	// SlowestSeconds is the longest response time of the broker's API server outside its own faults. If TooSlow is
	// true, it was too long: the machine is to blame, and the violations do not concern the broker.
	SlowestSeconds float64 `json:"slowestSeconds"`
	TooSlow        bool    `json:"tooSlow,omitempty"`
	// RecoverySeconds is how long everything took to settle after the last fault. AgainSeconds, for a history with one
	// fault, is how long after the beginning of the fault all pods were Ready again for good.
	RecoverySeconds float64 `json:"recoverySeconds"`
	// Last is the last problem before everything had settled.
	Last         string  `json:"last,omitempty"`
	AgainSeconds float64 `json:"againSeconds,omitempty"`

	h *History
}

// Violated reports whether a rule was broken on a machine that was fast enough.
func (r Result) Violated() bool { return len(r.Violations) > 0 && !r.TooSlow }

func (r Result) String() string {
	var faults []string
	for _, f := range r.h.faults {
		faults = append(faults, fmt.Sprintf("%s %s for %.0fs at %.0fs", f.provider, f.kind, f.takes.Seconds(), f.at.Seconds()))
	}
	text := fmt.Sprintf("%s: %d pods, %d events (%d gaps), recovered %.0fs after the last of %d faults: %s", r.Name, r.Pods,
		r.Events, r.Gaps, r.RecoverySeconds, r.Faults, strings.Join(faults, ", "))
	if r.Last != "" {
		text += fmt.Sprintf("\n  last problem before recovery: %.200s", r.Last)
	}
	if r.TooSlow {
		text += fmt.Sprintf("\n  not checked: the broker's API server took %.1fs to answer, without a fault", r.SlowestSeconds)
	}
	for _, violation := range r.Violations {
		text += "\n  VIOLATION " + violation
	}
	return text
}

// Results are the results of several histories.
type Results []Result

// Summary summarises results, and includes them.
type Summary struct {
	Histories  int `json:"histories"`
	Faults     int `json:"faults"`
	Pods       int `json:"pods"`
	Events     int `json:"events"`
	Gaps       int `json:"gaps"`
	Violations int `json:"violations"`
	// NotJudged counts the histories in which the machine was too slow. All other fields exclude them.
	NotJudged int `json:"notJudged"`
	// RecoverySeconds are how long everything took to settle after the last fault.
	RecoverySeconds Quantiles `json:"recoverySeconds"`
	// Alone summarises the histories with only one fault, by kind of fault.
	Alone   map[string]Alone `json:"alone,omitempty"`
	Results Results          `json:"results"`
}

// Alone summarises the histories in which one kind of fault happened by itself.
type Alone struct {
	Times int `json:"times"`
	// AgainSeconds is measured from the beginning of the fault until all pods were Ready, RecoverySeconds from its end
	// until everything had settled.
	AgainSeconds    Quantiles `json:"againSeconds"`
	RecoverySeconds Quantiles `json:"recoverySeconds"`
}

// Quantiles are the quantiles of some values; 0 if there are none.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func quantiles(values []float64) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[int(share*float64(len(values)-1)+0.5)] }
	return Quantiles{at(0.5), at(0.9), at(0.99), at(1)}
}

// Summary summarises the results.
func (all Results) Summary() Summary {
	s := Summary{Results: all, Alone: map[string]Alone{}}
	var recoveries []float64
	settled, again := map[string][]float64{}, map[string][]float64{}
	for i := range all {
		r := &all[i]
		if r.TooSlow {
			s.NotJudged++
			continue
		}
		s.Histories++
		s.Faults, s.Pods, s.Events, s.Gaps = s.Faults+r.Faults, s.Pods+r.Pods, s.Events+r.Events, s.Gaps+r.Gaps
		s.Violations += len(r.Violations)
		recoveries = append(recoveries, r.RecoverySeconds)
		if r.Kind != "" {
			settled[r.Kind], again[r.Kind] = append(settled[r.Kind], r.RecoverySeconds), append(again[r.Kind], r.AgainSeconds)
		}
	}
	s.RecoverySeconds = quantiles(recoveries)
	for kind := range settled {
		s.Alone[kind] = Alone{len(settled[kind]), quantiles(again[kind]), quantiles(settled[kind])}
	}
	return s
}

// Print prints figures for all histories, and for each fault that happened by itself.
func (all Results) Print(out io.Writer) {
	s := all.Summary()
	fmt.Fprintf(out, "%d histories with %d faults and %d pods, %d events (%d gaps): %d violations. Recovered %.0fs (median), "+
		"%.0fs (p90), %.0fs (p99), %.0fs (max) after the last fault\n",
		s.Histories, s.Faults, s.Pods, s.Events, s.Gaps, s.Violations,
		s.RecoverySeconds.P50, s.RecoverySeconds.P90, s.RecoverySeconds.P99, s.RecoverySeconds.Max)
	if s.NotJudged > 0 {
		fmt.Fprintf(out, "%d more were not checked: the machine was too slow\n", s.NotJudged)
	}
	if len(s.Alone) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\truns\tall pods Ready again after its start, median (max)\trecovered after its end, median (max)")
	for _, kind := range slices.Sorted(maps.Keys(s.Alone)) {
		a := s.Alone[kind]
		fmt.Fprintf(w, "%s\t%d\t%.0fs (%.0fs)\t%.0fs (%.0fs)\n", kind, a.Times, a.AgainSeconds.P50, a.AgainSeconds.Max,
			a.RecoverySeconds.P50, a.RecoverySeconds.Max)
	}
	_ = w.Flush()
}
