// Package score compares the providers that a pod fits, by plugins with weights, as kube-scheduler does. The table
// plugins has all of them, Round is the scoring of one decision. The caller passes in all data of a candidate that the
// plugins read: they know no state.
package score

import (
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Input is data of candidates that is not available in every decision, or takes time to compute.
type Input uint8

// The inputs: the free capacity, the pods of the pod's application, the points of the policy's expression, how far the
// pod's preferred constraints are met, and the cost of the pod.
const (
	Free Input = 1 << iota
	App
	Expression
	Preferred
	Price
)

// NoDomain is the DomainPods of a provider that is in no domain.
const NoDomain = -1

// Candidate is a provider that passed all filters. Its scores are written into Verdict.
type Candidate struct {
	Verdict  *verdict.Verdict
	Measured *Measured
	// Price is the cost of an hour of the pod, in Currency. It is NaN if it is unknown.
	Price    float64
	Currency string
	// Free is the share of the provider's grant that stays free with the pod, 0 to 1.
	Free float64
	// AppPods are the pods of the application at the provider, DomainPods the ones in its domain.
	AppPods, DomainPods int
	Expression          verdict.Points
	// Preferred is how far the pod's preferred constraints are met, 0 to 1.
	Preferred float64
}

// Measured are the points that a provider's KPIs give, by uptime window and by plugin.
type Measured [len(uptimeWindows)][]verdict.Points

// Measure returns the points of KPIs.
func Measure(values kpi.Values) Measured {
	var m Measured
	for window := range m {
		m[window] = make([]verdict.Points, len(plugins))
		for i := range plugins {
			if of := plugins[i].measured; of != nil {
				m[window][i] = of(values, window)
			}
		}
	}
	return m
}

// Round is the scoring of one decision: NewRound, Add for each candidate, Score and Best.
type Round struct {
	candidates []Candidate
	// weighed are the active plugins, totalWeight is the sum of their weights, and unscored is the initial value of
	// every candidate's scores.
	weighed     []weighed
	unscored    []verdict.PluginScore
	totalWeight int64
	// reads are the inputs of the active plugins.
	reads Input
	// window is the uptime window of the policy, an index of uptimeWindows.
	window int

	// mostAppPods is the most pods of the application on one candidate; fullest and emptiest are of the domains.
	mostAppPods, fullest, emptiest int
	// cheapest is the lowest price known of a candidate in currency, which most candidates have.
	cheapest float64
	currency string
}

// weighed is an active plugin of a decision.
type weighed struct {
	// number is its index in plugins, and in a row of Measured.
	number int
	weight int64
	points func(*Round, *Candidate) verdict.Points
}

// NewRound chooses the plugins that have a weight and whose inputs are available. Nil weights are the default ones; an
// uptime window that is unknown is the default one.
func NewRound(weights []Weight, uptimeWindow string, available Input) Round {
	r := Round{window: windowOf(uptimeWindow)}
	for i := range plugins {
		p := &plugins[i]
		weight := p.weightIn(weights)
		if weight <= 0 || p.reads&^available != 0 {
			continue
		}
		r.weighed = append(r.weighed, weighed{number: i, weight: int64(weight), points: p.points})
		r.unscored = append(r.unscored, verdict.PluginScore{Plugin: p.name, Weight: weight})
		r.totalWeight += int64(weight)
		r.reads |= p.reads
	}
	return r
}

// Reads reports whether an active plugin reads an input.
func (r *Round) Reads(input Input) bool { return r.reads&input != 0 }

// Add adds a candidate.
func (r *Round) Add(c Candidate) { r.candidates = append(r.candidates, c) }

// Score writes the scores of all candidates into their verdicts.
func (r *Round) Score() {
	if r.totalWeight == 0 {
		return
	}
	for i := range r.weighed {
		if compare := plugins[r.weighed[i].number].compare; compare != nil {
			compare(r)
		}
	}
	for k := range r.candidates {
		scores := slices.Clone(r.unscored)
		candidate := &r.candidates[k]
		row := candidate.Measured[r.window]
		total := int64(0)
		for i := range r.weighed {
			w := &r.weighed[i]
			given := row[w.number]
			if w.points != nil {
				given = w.points(r, candidate)
			}
			scores[i].Points, scores[i].Score = given, int((given+500)/1000)
			total += w.weight * int64(given)
		}
		candidate.Verdict.Scores, candidate.Verdict.Sum = scores, total
		candidate.Verdict.Total = int((2*total + r.totalWeight*1000) / (2 * r.totalWeight * 1000))
	}
}

// Best returns the verdict of the best candidate, of equals the first; nil if there is none.
func (r *Round) Best() *verdict.Verdict {
	var winner *verdict.Verdict
	for i := range r.candidates {
		if v := r.candidates[i].Verdict; winner == nil || v.Sum > winner.Sum {
			winner = v
		}
	}
	return winner
}
