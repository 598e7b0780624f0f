package simulate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

const (
	maxDuration  = 366 * 24 * time.Hour
	maxProviders = 10_000
	maxPods      = 1e6
	hoursOfDay   = 24
	mostWeight   = 1000
)

// faults collects the faults of a scenario.
type faults struct{ field.ErrorList }

func (f *faults) when(wrong bool, at *field.Path, value any, remedy string) {
	if wrong {
		f.ErrorList = append(f.ErrorList, field.Invalid(at, value, remedy))
	}
}

func (f *faults) missing(missing bool, at *field.Path, remedy string) {
	if missing {
		f.ErrorList = append(f.ErrorList, field.Required(at, remedy))
	}
}

func (f *faults) number(value, least, most float64, at *field.Path) {
	f.when(!(value >= least && value <= most), at, value, fmt.Sprintf("must be %.0f to %.0f", least, most))
}

func (f *faults) duration(d *metav1.Duration, least time.Duration, at *field.Path) {
	f.when(d != nil && d.Duration < least, at, orDefault(d, 0).String(), "must be at least "+least.String())
}

// name is for a name of an object, which must not be among others.
func (f *faults) name(name string, others sets.Set[string], at *field.Path) {
	for _, why := range validation.IsDNS1123Subdomain(name) {
		f.when(true, at, name, why)
	}
	if others.Has(name) {
		f.ErrorList = append(f.ErrorList, field.Duplicate(at, name))
	}
	others.Insert(name)
}

func (f *faults) amounts(amounts corev1.ResourceList, required bool, at *field.Path) {
	f.missing(required && len(amounts) == 0, at, "give resources, such as cpu: 500m")
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		amount := amounts[name]
		f.when(amount.Sign() < 0, at.Key(string(name)), amount.String(), "must not be negative")
	}
}

func (f *faults) prices(lists []v1alpha1.PriceList, at *field.Path) {
	for i := range lists {
		at := at.Index(i)
		f.when(!price.IsCurrency(lists[i].Currency), at.Child("currency"), lists[i].Currency, "use a code of ISO 4217, such as EUR")
		for _, name := range slices.Sorted(maps.Keys(lists[i].PerHour)) {
			text := string(lists[i].PerHour[name])
			_, ok := price.Parse(text)
			f.when(!ok, at.Child("perHour").Key(string(name)), text, "must be a decimal number in quotes, such as \"0.042\"")
		}
	}
}

func (f *faults) distribution(d *Distribution, required bool, at *field.Path) {
	if names := []string{fixed, exponential, lognormal}; d.Distribution != "" && !slices.Contains(names, d.Distribution) {
		f.ErrorList = append(f.ErrorList, field.NotSupported(at.Child("distribution"), d.Distribution, names))
	}
	f.duration(&d.Mean, 0, at.Child("mean"))
	f.missing(d.Mean.Duration == 0 && (required || *d != Distribution{}), at.Child("mean"), "give a duration, such as 2h")
	f.number(d.Sigma, 0, 10, at.Child("sigma"))
	f.when(d.Sigma != 0 && d.Distribution != lognormal, at.Child("sigma"), d.Sigma, "is for lognormal only")
}

// validate returns all faults of a scenario.
func (sc *Scenario) validate() field.ErrorList {
	f := &faults{}
	f.missing(sc.Start.IsZero(), field.NewPath("start"), "give a time, such as 2026-03-02T00:00:00Z")
	f.duration(&sc.Duration, time.Minute, field.NewPath("duration"))
	f.when(sc.Duration.Duration > maxDuration, field.NewPath("duration"), sc.Duration.Duration.String(), "must be at most 8784h")
	b, at := &sc.Broker, field.NewPath("broker")
	f.duration(b.ProbeInterval, time.Second, at.Child("probeInterval"))
	f.duration(b.FailoverAfter, time.Second, at.Child("failoverAfter"))
	f.duration(b.SuspicionWindow, time.Second, at.Child("suspicionWindow"))
	f.duration(b.ReserveAfter, 0, at.Child("reserveAfter"))
	if b.MovesAtOnce != nil {
		f.number(float64(*b.MovesAtOnce), 1, maxPods, at.Child("movesAtOnce"))
	}
	virtualNodes := sc.validateProviders(f)
	sc.validatePolicies(f)
	sc.validateConsumers(f, virtualNodes)
	for i := range sc.Events {
		sc.Events[i].validate(f, field.NewPath("events").Index(i), sc.Duration.Duration, virtualNodes)
	}
	return f.ErrorList
}

// validateProviders returns the number of virtual nodes of each provider, by id.
func (sc *Scenario) validateProviders(f *faults) map[string]int {
	virtualNodes, ids, total := map[string]int{}, sets.New[string](), len(sc.ProviderClusters)
	for i := range sc.Providers {
		p, at := &sc.Providers[i], field.NewPath("providers").Index(i)
		if total += max(1, p.Count); p.Count < 0 || total > maxProviders {
			f.when(true, at.Child("count"), p.Count, fmt.Sprintf("use 1 to %d providers in all", maxProviders))
			return virtualNodes
		}
		for _, id := range p.ids() {
			f.name(id, ids, at.Child("id"))
			virtualNodes[id] = 1
		}
		f.amounts(p.Granted, true, at.Child("granted"))
		f.prices(p.Prices, at.Child("prices"))
		f.number(p.KPIs.Uptime, 0, 1, at.Child("kpis", "uptime"))
		f.duration(p.KPIs.Latency, 0, at.Child("kpis", "latency"))
		f.distribution(&p.Start, false, at.Child("start"))
		f.duration(p.Stop, 0, at.Child("stop"))
	}
	for i := range sc.ProviderClusters {
		pc, at := &sc.ProviderClusters[i], field.NewPath("providerClusters").Index(i)
		f.name(pc.Name, ids, at.Child("metadata", "name"))
		virtualNodes[pc.Name] = len(pc.Status.VirtualNodes)
		f.missing(virtualNodes[pc.Name] == 0, at.Child("status", "virtualNodes"), "give at least one with resources.granted")
		f.prices(pc.Spec.Prices, at.Child("spec", "prices"))
	}
	f.missing(total == 0, field.NewPath("providers"), "give at least one provider")
	return virtualNodes
}

func (sc *Scenario) validatePolicies(f *faults) {
	compiler, names := placement.Policies{Programs: cel.NewCache(programs)}, sets.New[string]()
	for i := range sc.Policies {
		p, at := &sc.Policies[i], field.NewPath("policies").Index(i)
		f.name(p.Name, names, at.Child("metadata", "name"))
		f.when(p.Kind != "" && p.Kind != "PlacementPolicy", at.Child("kind"), p.Kind, "must be PlacementPolicy")
		_, err := compiler.Compile(p)
		f.when(err != nil, at, field.OmitValueType{}, fmt.Sprint(err))
	}
}

func (sc *Scenario) validateConsumers(f *faults, virtualNodes map[string]int) {
	f.missing(len(sc.Consumers) == 0, field.NewPath("consumers"), "give at least one consumer with workloads")
	ids, owners := sets.New[string](), map[string]string{}
	for i := range sc.Consumers {
		c, at := &sc.Consumers[i], field.NewPath("consumers").Index(i)
		f.name(c.ID, ids, at.Child("id"))
		f.ErrorList = append(f.ErrorList, metav1validation.ValidateLabels(c.Labels, at.Child("labels"))...)
		f.amounts(c.Grant, false, at.Child("grant"))
		f.amounts(c.Guaranteed, false, at.Child("guaranteed"))
		f.when(c.Weight != nil && (*c.Weight < 1 || *c.Weight > mostWeight), at.Child("weight"), ptr.Deref(c.Weight, 0),
			fmt.Sprintf("use 1 to %d", mostWeight))
		names := sets.New[string]()
		for k := range c.Workloads {
			w, at := &c.Workloads[k], at.Child("workloads").Index(k)
			f.name(w.Name, names, at.Child("name"))
			w.validate(f, at)
			if to := w.AssignedTo; to != nil {
				f.when(virtualNodes[to.Provider] == 0, at.Child("assignedTo", "provider"), to.Provider, "there is no such provider")
			}
			namespace := w.namespaceOf(c)
			f.name(namespace, sets.New[string](), at.Child("namespace"))
			owner, taken := owners[namespace]
			f.when(taken && owner != c.ID, at.Child("namespace"), namespace, "is a namespace of consumer "+owner)
			owners[namespace] = c.ID
		}
	}
}

func (w *Workload) validate(f *faults, at *field.Path) {
	f.amounts(w.Requests, true, at.Child("requests"))
	f.ErrorList = append(f.ErrorList, metav1validation.ValidateLabels(w.Labels, at.Child("labels"))...)
	f.ErrorList = append(f.ErrorList, metav1validation.ValidateLabels(w.NamespaceLabels, at.Child("namespaceLabels"))...)
	f.distribution(&w.Lifetime, true, at.Child("lifetime"))
	in := at.Child("arrivals")
	f.number(w.Arrivals.PerHour, 0, maxPods, in.Child("perHour"))
	f.number(float64(w.Arrivals.Initial), 0, maxPods, in.Child("initial"))
	n := len(w.Arrivals.Profile)
	f.when(n != 0 && n != hoursOfDay, in.Child("profile"), n, "give 24 numbers, one for each hour of the day, or none")
	for i, factor := range w.Arrivals.Profile {
		f.number(factor, 0, 1000, in.Child("profile").Index(i))
	}
}

func (e *Event) validate(f *faults, at *field.Path, duration time.Duration, virtualNodes map[string]int) {
	f.when(e.At.Duration < 0 || e.At.Duration > duration, at.Child("at"), e.At.Duration.String(), "use a time since start, within duration")
	n, known := virtualNodes[e.Provider]
	f.when(!known, at.Child("provider"), e.Provider, "there is no such provider")
	if e.Action != "" && !slices.Contains(actions(), e.Action) {
		f.ErrorList = append(f.ErrorList, field.NotSupported(at.Child("action"), e.Action, actions()))
	}
	f.missing(e.Action == "" && e.Attributes == nil && e.Prices == nil && e.Granted == nil, at,
		"set action, attributes, prices or granted")
	f.when(e.Granted != nil && known && n != 1, at.Child("granted"), e.Provider, "the provider has several virtual nodes")
	f.amounts(e.Granted, false, at.Child("granted"))
	f.prices(e.Prices, at.Child("prices"))
}
