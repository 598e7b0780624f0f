package simulate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

const (
	minDuration  = time.Minute
	maxDuration  = 366 * 24 * time.Hour
	maxProviders = 10_000
	maxPerHour   = 1e6
	hoursOfDay   = 24
)

// validate returns all faults of a scenario.
func (sc *Scenario) validate() (faults field.ErrorList) {
	if sc.Start.IsZero() {
		faults = append(faults, field.Required(field.NewPath("start"), "give a time, such as 2026-03-02T00:00:00Z"))
	}
	if d := sc.Duration.Duration; d < minDuration || d > maxDuration {
		faults = append(faults, field.Invalid(field.NewPath("duration"), d.String(), "use a duration from 1m to 8784h, such as 24h"))
	}
	faults = append(faults, sc.Broker.validate(field.NewPath("broker"))...)
	ids, found := sc.validateProviders()
	faults = append(faults, found...)
	faults = append(faults, sc.validatePolicies()...)
	faults = append(faults, sc.validateConsumers()...)
	for i := range sc.Events {
		faults = append(faults, sc.Events[i].validate(field.NewPath("events").Index(i), sc.Duration.Duration, ids)...)
	}
	return faults
}

func (b *Broker) validate(at *field.Path) (faults field.ErrorList) {
	if d := b.ProbeInterval; d != nil && d.Duration < time.Second {
		faults = append(faults, field.Invalid(at.Child("probeInterval"), d.Duration.String(), "must be at least 1s"))
	}
	if d := b.FailoverAfter; d != nil && d.Duration <= 0 {
		faults = append(faults, field.Invalid(at.Child("failoverAfter"), d.Duration.String(), "must be positive"))
	}
	if d := b.SuspicionWindow; d != nil && d.Duration <= 0 {
		faults = append(faults, field.Invalid(at.Child("suspicionWindow"), d.Duration.String(), "must be positive"))
	}
	if d := b.ReserveAfter; d != nil && d.Duration < 0 {
		faults = append(faults, field.Invalid(at.Child("reserveAfter"), d.Duration.String(), "use a duration, or 0s for never"))
	}
	if n := b.MovesAtOnce; n != nil && *n < 1 {
		faults = append(faults, field.Invalid(at.Child("movesAtOnce"), *n, "must be at least 1"))
	}
	return faults
}

// validateProviders also returns the number of virtual nodes of each provider, by id.
func (sc *Scenario) validateProviders() (slicesOf map[string]int, faults field.ErrorList) {
	slicesOf, all := map[string]int{}, 0
	add := func(id string, slices int, at *field.Path) {
		if _, known := slicesOf[id]; known {
			faults = append(faults, field.Duplicate(at, id))
		}
		slicesOf[id] = slices
	}
	for i := range sc.Providers {
		p, at := &sc.Providers[i], field.NewPath("providers").Index(i)
		faults = append(faults, validateID(p.ID, at.Child("id"))...)
		if all += max(1, p.Count); p.Count < 0 || all > maxProviders {
			faults = append(faults, field.Invalid(at.Child("count"), p.Count, fmt.Sprintf("use 1 to %d providers in all", maxProviders)))
			continue
		}
		for _, id := range p.ids() {
			add(id, 1, at.Child("id"))
		}
		faults = append(faults, validateAmounts(p.Granted, at.Child("granted"), true)...)
		faults = append(faults, validatePrices(p.Prices, at.Child("prices"))...)
		if u := p.KPIs.Uptime; u < 0 || u > 1 || math.IsNaN(u) {
			faults = append(faults, field.Invalid(at.Child("kpis", "uptime"), u, "must be a share above 0, at most 1"))
		}
		if d := p.KPIs.Latency; d != nil && d.Duration < 0 {
			faults = append(faults, field.Invalid(at.Child("kpis", "latency"), d.Duration.String(), "must not be negative"))
		}
		faults = append(faults, p.Start.validate(at.Child("start"), false)...)
		if p.Stop != nil && p.Stop.Duration < 0 {
			faults = append(faults, field.Invalid(at.Child("stop"), p.Stop.Duration.String(), "must not be negative"))
		}
	}
	for i := range sc.ProviderClusters {
		pc, at := &sc.ProviderClusters[i], field.NewPath("providerClusters").Index(i)
		faults = append(faults, validateID(pc.Name, at.Child("metadata", "name"))...)
		add(pc.Name, len(pc.Status.VirtualNodes), at.Child("metadata", "name"))
		if len(pc.Status.VirtualNodes) == 0 {
			faults = append(faults, field.Required(at.Child("status", "virtualNodes"), "give at least one with resources.granted"))
		}
		faults = append(faults, validatePrices(pc.Spec.Prices, at.Child("spec", "prices"))...)
	}
	if len(slicesOf) == 0 {
		faults = append(faults, field.Required(field.NewPath("providers"), "give at least one provider"))
	}
	return slicesOf, faults
}

// ids returns the ids of the providers that are made.
func (p *Provider) ids() []string {
	if p.Count == 0 {
		return []string{p.ID}
	}
	ids := make([]string, p.Count)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", p.ID, i+1)
	}
	return ids
}

func (sc *Scenario) validatePolicies() (faults field.ErrorList) {
	compiler, names := placement.Policies{Programs: cel.NewCache(programs)}, sets.New[string]()
	for i := range sc.Policies {
		p, at := &sc.Policies[i], field.NewPath("policies").Index(i)
		faults = append(faults, validateID(p.Name, at.Child("metadata", "name"))...)
		if names.Has(p.Name) {
			faults = append(faults, field.Duplicate(at.Child("metadata", "name"), p.Name))
		}
		names.Insert(p.Name)
		if p.Kind != "" && p.Kind != "PlacementPolicy" {
			faults = append(faults, field.NotSupported(at.Child("kind"), p.Kind, []string{"PlacementPolicy"}))
		}
		if _, err := compiler.Compile(p); err != nil {
			faults = append(faults, field.Invalid(at, field.OmitValueType{}, err.Error()))
		}
	}
	return faults
}

func (sc *Scenario) validateConsumers() (faults field.ErrorList) {
	if len(sc.Consumers) == 0 {
		faults = append(faults, field.Required(field.NewPath("consumers"), "give at least one consumer with workloads"))
	}
	ids, namespaces := sets.New[string](), map[string]string{}
	for i := range sc.Consumers {
		c, at := &sc.Consumers[i], field.NewPath("consumers").Index(i)
		faults = append(faults, validateID(c.ID, at.Child("id"))...)
		if ids.Has(c.ID) {
			faults = append(faults, field.Duplicate(at.Child("id"), c.ID))
		}
		ids.Insert(c.ID)
		faults = append(faults, metav1validation.ValidateLabels(c.Labels, at.Child("labels"))...)
		faults = append(faults, validateAmounts(c.Grant, at.Child("grant"), false)...)
		names := sets.New[string]()
		for k := range c.Workloads {
			w, at := &c.Workloads[k], at.Child("workloads").Index(k)
			faults = append(faults, w.validate(at)...)
			if names.Has(w.Name) {
				faults = append(faults, field.Duplicate(at.Child("name"), w.Name))
			}
			names.Insert(w.Name)
			namespace := w.namespaceOf(c)
			if other, taken := namespaces[namespace]; taken && other != c.ID {
				faults = append(faults, field.Invalid(at.Child("namespace"), namespace, "is a namespace of consumer "+other))
			}
			namespaces[namespace] = c.ID
		}
	}
	return faults
}

func (w *Workload) namespaceOf(c *Consumer) string {
	if w.Namespace != "" {
		return w.Namespace
	}
	return c.ID
}

func (w *Workload) validate(at *field.Path) (faults field.ErrorList) {
	faults = append(validateID(w.Name, at.Child("name")), validateAmounts(w.Requests, at.Child("requests"), true)...)
	if w.Namespace != "" {
		faults = append(faults, validateID(w.Namespace, at.Child("namespace"))...)
	}
	faults = append(faults, metav1validation.ValidateLabels(w.Labels, at.Child("labels"))...)
	faults = append(faults, w.Lifetime.validate(at.Child("lifetime"), true)...)
	in := at.Child("arrivals")
	if n := w.Arrivals.PerHour; n < 0 || n > maxPerHour || math.IsNaN(n) {
		faults = append(faults, field.Invalid(in.Child("perHour"), n, "must be 0 to 1000000"))
	}
	if w.Arrivals.Initial < 0 || w.Arrivals.Initial > maxPerHour {
		faults = append(faults, field.Invalid(in.Child("initial"), w.Arrivals.Initial, "must be 0 to 1000000"))
	}
	if n := len(w.Arrivals.Profile); n != 0 && n != hoursOfDay {
		faults = append(faults, field.Invalid(in.Child("profile"), n, "give 24 numbers, one for each hour of the day, or none"))
	}
	for i, factor := range w.Arrivals.Profile {
		if factor < 0 || factor > 1000 || math.IsNaN(factor) {
			faults = append(faults, field.Invalid(in.Child("profile").Index(i), factor, "must be 0 to 1000"))
		}
	}
	return faults
}

func (d *Distribution) validate(at *field.Path, required bool) (faults field.ErrorList) {
	if names := []string{fixed, exponential, lognormal}; d.Distribution != "" && !slices.Contains(names, d.Distribution) {
		faults = append(faults, field.NotSupported(at.Child("distribution"), d.Distribution, names))
	}
	switch {
	case d.Mean.Duration < 0:
		faults = append(faults, field.Invalid(at.Child("mean"), d.Mean.Duration.String(), "must be positive"))
	case d.Mean.Duration == 0 && (required || *d != Distribution{}):
		faults = append(faults, field.Required(at.Child("mean"), "give a duration, such as 2h"))
	}
	if d.Sigma < 0 || d.Sigma > 10 || d.Sigma != 0 && d.Distribution != lognormal {
		faults = append(faults, field.Invalid(at.Child("sigma"), d.Sigma, "must be 0 to 10, and is for lognormal only"))
	}
	return faults
}

func (e *Event) validate(at *field.Path, duration time.Duration, slicesOf map[string]int) (faults field.ErrorList) {
	if e.At.Duration < 0 || e.At.Duration > duration {
		faults = append(faults, field.Invalid(at.Child("at"), e.At.Duration.String(), "use a time since start, within duration"))
	}
	virtualNodes, known := slicesOf[e.Provider]
	if !known {
		faults = append(faults, field.Invalid(at.Child("provider"), e.Provider, "there is no such provider"))
	}
	if e.Action != "" && !slices.Contains(actions(), e.Action) {
		faults = append(faults, field.NotSupported(at.Child("action"), e.Action, actions()))
	}
	if e.Action == "" && e.Attributes == nil && e.Prices == nil && e.Granted == nil {
		faults = append(faults, field.Required(at, "set action, attributes, prices or granted"))
	}
	if e.Granted != nil && known && virtualNodes != 1 {
		faults = append(faults, field.Forbidden(at.Child("granted"), "the provider has several virtual nodes"))
	}
	faults = append(faults, validateAmounts(e.Granted, at.Child("granted"), false)...)
	return append(faults, validatePrices(e.Prices, at.Child("prices"))...)
}

func validateID(id string, at *field.Path) (faults field.ErrorList) {
	if id == "" {
		return field.ErrorList{field.Required(at, "give a name")}
	}
	for _, why := range validation.IsDNS1123Label(id) {
		faults = append(faults, field.Invalid(at, id, why))
	}
	return faults
}

func validateAmounts(amounts corev1.ResourceList, at *field.Path, required bool) (faults field.ErrorList) {
	if required && len(amounts) == 0 {
		faults = append(faults, field.Required(at, "give resources, such as cpu: 500m"))
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if amount := amounts[name]; amount.Sign() < 0 {
			faults = append(faults, field.Invalid(at.Key(string(name)), amount.String(), "must not be negative"))
		}
	}
	return faults
}

func validatePrices(lists []v1alpha1.PriceList, at *field.Path) (faults field.ErrorList) {
	for i := range lists {
		if !price.IsCurrency(lists[i].Currency) {
			faults = append(faults, field.Invalid(at.Index(i).Child("currency"), lists[i].Currency, "use a code of ISO 4217, such as EUR"))
		}
		for _, name := range slices.Sorted(maps.Keys(lists[i].PerHour)) {
			if text := lists[i].PerHour[name]; !isPrice(text) {
				faults = append(faults, field.Invalid(at.Index(i).Child("perHour").Key(string(name)), string(text),
					"must be a decimal number in quotes, such as \"0.042\""))
			}
		}
	}
	return faults
}

func isPrice(text v1alpha1.Decimal) bool {
	_, ok := price.Parse(string(text))
	return ok
}
