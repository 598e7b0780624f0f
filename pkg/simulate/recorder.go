package simulate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// hourly has amounts times hours in each hour, by resource.
type hourly map[corev1.ResourceName][]float64

// recorder keeps the history for the report.
type recorder struct {
	scenario *Scenario
	hours    int
	prices   *ledger.Prices
	latest   map[string]ledger.PriceChange
	costs    *ledger.Sum
	records  []*record
	moves    map[eviction.Reason]int
	moving   []time.Duration
	stayed   int
	// granted has the amounts of each provider, and since when; used is by provider, had by consumer.
	granted     map[string][]grant
	used, had   map[string]hourly
	assignments map[string]int
}

type grant struct {
	since   time.Time
	amounts resources.Amounts
}

// recorded is the part of a pod's history that is open.
type recorded struct {
	*record

	segment ledger.Segment
	// filters are the verdicts of its last try on any provider, each once.
	filters []verdict.Verdict
	beyond  bool
}

func newRecorder(sc *Scenario) *recorder {
	return &recorder{
		scenario: sc, hours: int((sc.Duration.Duration + time.Hour - 1) / time.Hour), prices: ledger.NewPrices(),
		latest: map[string]ledger.PriceChange{},
		costs:  ledger.NewSum(ledger.ByConsumer, ledger.ByProvider), moves: map[eviction.Reason]int{},
		granted: map[string][]grant{}, used: map[string]hourly{}, had: map[string]hourly{}, assignments: map[string]int{},
	}
}

// recordPrices records the prices of a provider if they differ from the last ones.
func (r *recorder) recordPrices(provider string, now time.Time, lists price.Lists) {
	latest, known := r.latest[provider]
	if !known || latest.Differs(lists) {
		r.latest[provider] = ledger.PriceChange{At: now, Lists: lists}
		r.prices.Observe(provider, now, lists)
	}
}

func (r *recorder) recordGrant(provider string, now time.Time, amounts resources.Amounts) {
	r.granted[provider] = append(r.granted[provider], grant{now, amounts})
}

func (r *recorder) recordArrival(p *pod, now time.Time) {
	p.record = &record{consumer: p.consumer.ID, namespace: p.name.Namespace, name: p.name.Name, workload: p.spec.Name, arrived: now}
	r.records = append(r.records, p.record)
	p.number = len(r.records)
}

// observe records why no provider was chosen.
func (p *recorded) observe(d *scheduler.Decision) {
	p.filters, p.beyond = p.filters[:0], d.Beyond != ""
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !slices.ContainsFunc(p.filters, func(o verdict.Verdict) bool { return o.Filter == v.Filter && o.Detail == v.Detail }) {
			p.filters = append(p.filters, verdict.Verdict{Filter: v.Filter, Detail: v.Detail})
		}
	}
}

func (r *recorder) recordAssignment(p *pod, now time.Time, took time.Duration, moved bool) {
	if p.placed.IsZero() {
		p.placed = now
	}
	if moved {
		r.moving = append(r.moving, took)
	}
	provider := p.place.Provider
	p.filters, p.places = nil, append(p.places, provider)
	r.assignments[provider]++
	p.segment = ledger.Segment{Start: now, Holding: ledger.Holding{
		UID: p.object.UID, Consumer: p.consumer.ID, Namespace: p.name.Namespace, Pod: p.name.Name,
		Workload: placement.ApplicationOf(p.object), Provider: provider, Assigned: now, Requests: resources.PodRequests(&p.object.Spec),
	}}
}

// charge records the cost and the resources of a pod that was assigned until now.
func (r *recorder) charge(p *pod, now time.Time) {
	s := &p.segment
	r.prices.Charges(s, s.Start, now, func(c *ledger.Charge) {
		r.costs.Add(c)
		if c.Priced {
			if p.cost == nil {
				p.cost = map[string]float64{}
			}
			p.cost[c.Price.Currency] += c.Cost
		}
	})
	r.add(r.used, s.Provider, s, now)
	r.add(r.had, s.Consumer, s, now)
}

func (r *recorder) add(to map[string]hourly, key string, s *ledger.Segment, now time.Time) {
	of := to[key]
	if of == nil {
		of = hourly{}
		to[key] = of
	}
	for name, amount := range s.Requests {
		of.add(r, name, price.Units(name, amount), s.Start, now)
	}
}

// add adds an amount that was there for a time.
func (h hourly) add(r *recorder, name corev1.ResourceName, amount float64, from, to time.Time) {
	if h[name] == nil {
		h[name] = make([]float64, r.hours)
	}
	for from.Before(to) {
		hour := int(from.Sub(r.scenario.Start.Time) / time.Hour)
		until := r.scenario.Start.Add(time.Duration(hour+1) * time.Hour)
		if to.Before(until) {
			until = to
		}
		h[name][hour] += amount * until.Sub(from).Hours()
		from = until
	}
}

func (r *recorder) recordEviction(p *pod, why eviction.Reason) {
	p.moves++
	r.moves[why]++
}

func (r *recorder) recordStay(isNew bool) {
	if isNew {
		r.stayed++
	}
}

func (r *record) end(now time.Time) { r.ended = now }

// report closes the history.
func (s *simulation) report() *Report {
	r := &Report{
		Scenario: s.scenario.Name, Start: s.scenario.Start.UTC(), DurationSeconds: s.scenario.Duration.Seconds(), Seed: s.scenario.Seed,
		records: s.records, Moves: []Moves{}, NeverPlaced: []Reason{},
	}
	open := slices.SortedFunc(maps.Values(s.pods), func(x, y *pod) int { return x.number - y.number })
	for _, p := range open {
		switch p.phase {
		case assigned:
			s.charge(p, s.end)
			r.Pods.Running++
		case waits, leaves:
			r.Pods.Waiting++
			if p.placed.IsZero() {
				p.waits = p.reasons()
			}
		case gone:
		}
	}
	waited := s.count(r)
	r.Waited, r.Moving = quantiles(waited), quantiles(s.moving)
	for _, why := range eviction.Reasons() {
		if n := s.moves[why]; n > 0 {
			r.Moves = append(r.Moves, Moves{Cause: string(why), Moves: n})
		}
	}
	r.Pods.Stayed = s.stayed
	r.Costs = s.costs.Rows()
	for _, row := range r.Costs {
		roundAll(row.Hours)
		roundAll(row.Cost)
		row.Unpriced = round(row.Unpriced)
	}
	total := s.reportProviders(r)
	s.reportConsumers(r, total)
	return r
}

// reasons returns why a pod waits.
func (p *pod) reasons() (texts []string) {
	switch {
	case p.invalid != "":
		return []string{p.invalid}
	case p.beyond:
		return []string{"beyond the grant of its consumer"}
	}
	for i := range p.filters {
		texts = append(texts, p.filters[i].Reason())
	}
	return texts
}

// count counts the pods, and returns how long those waited that were assigned.
func (s *simulation) count(r *Report) (waited []time.Duration) {
	reasons := map[string]*Reason{}
	for _, of := range s.records {
		r.Pods.Arrived++
		if !of.ended.IsZero() {
			r.Pods.Ended++
		}
		if of.moves > 0 {
			r.Pods.Moved++
		}
		if !of.placed.IsZero() {
			r.Pods.Placed++
			waited = append(waited, of.placed.Sub(of.arrived))
			continue
		}
		r.Pods.Never++
		for _, text := range of.waits {
			if reasons[text] == nil {
				reasons[text] = &Reason{Reason: text, Example: of.id()}
			}
			reasons[text].Pods++
		}
	}
	for _, reason := range reasons {
		r.NeverPlaced = append(r.NeverPlaced, *reason)
	}
	slices.SortFunc(r.NeverPlaced, func(x, y Reason) int {
		return cmp.Or(cmp.Compare(y.Pods, x.Pods), strings.Compare(x.Reason, y.Reason))
	})
	return waited
}

// lasts returns how many hours an hour of the report lasts: the last one may be shorter.
func (r *recorder) lasts(hour int) float64 {
	return min(1, (r.scenario.Duration.Duration - time.Duration(hour)*time.Hour).Hours())
}

// reportProviders adds the providers to the report, and returns the amounts that all grant.
func (s *simulation) reportProviders(r *Report) hourly {
	total := hourly{}
	for _, id := range slices.Sorted(maps.Keys(s.providers)) {
		granted := hourly{}
		for i, of := range s.granted[id] {
			until := s.end
			if i+1 < len(s.granted[id]) {
				until = s.granted[id][i+1].since
			}
			for name, amount := range of.amounts {
				granted.add(s.recorder, name, price.Units(name, amount), of.since, until)
			}
		}
		report := ProviderReport{
			Provider: id, Assignments: s.assignments[id], Resources: map[corev1.ResourceName]*Usage{}, Used: make([]float64, s.hours),
		}
		for _, name := range slices.Sorted(maps.Keys(granted)) {
			usage := &Usage{Granted: granted[name], Assigned: make([]float64, s.hours)}
			copy(usage.Assigned, s.used[id][name])
			if total[name] == nil {
				total[name] = make([]float64, s.hours)
			}
			for hour := range s.hours {
				total[name][hour] += usage.Granted[hour]
				if usage.Granted[hour] > 0 {
					report.Used[hour] = max(report.Used[hour], round(usage.Assigned[hour]/usage.Granted[hour]))
				}
				usage.Granted[hour] = round(usage.Granted[hour] / s.lasts(hour))
				usage.Assigned[hour] = round(usage.Assigned[hour] / s.lasts(hour))
			}
			report.Resources[name] = usage
		}
		r.Providers = append(r.Providers, report)
	}
	return total
}

func (s *simulation) reportConsumers(r *Report, total hourly) {
	waited := map[string][]time.Duration{}
	arrived := map[string]int{}
	for _, of := range s.records {
		arrived[of.consumer]++
		if !of.placed.IsZero() {
			waited[of.consumer] = append(waited[of.consumer], of.placed.Sub(of.arrived))
		}
	}
	for i := range s.scenario.Consumers {
		id := s.scenario.Consumers[i].ID
		report := ConsumerReport{
			Consumer: id, Arrived: arrived[id], Placed: len(waited[id]), Waited: quantiles(waited[id]), Share: make([]float64, s.hours),
		}
		for name, had := range s.had[id] {
			for hour, granted := range total[name] {
				if granted > 0 {
					report.Share[hour] = max(report.Share[hour], round(had[hour]/granted))
				}
			}
		}
		r.Consumers = append(r.Consumers, report)
	}
}

func quantiles(of []time.Duration) Quantiles {
	if len(of) == 0 {
		return Quantiles{}
	}
	sorted := slices.Sorted(slices.Values(of))
	at := func(share float64) float64 {
		rank := int(math.Ceil(share*float64(len(sorted)))) - 1
		return sorted[max(0, rank)].Round(time.Millisecond).Seconds()
	}
	return Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Longest: at(1)}
}

// round rounds to six decimals.
func round(value float64) float64 { return math.Round(value*1e6) / 1e6 }

func roundAll[K comparable](values map[K]float64) {
	for key, value := range values {
		values[key] = round(value)
	}
}
