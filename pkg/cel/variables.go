package cel

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
)

// Provider has the values of the variable provider. They are read while expressions run, not before.
type Provider struct {
	ID                      string
	Labels, Attributes      *values.Texts
	KPIs                    kpi.Values
	Granted, Assigned, Free values.Amounts
}

// Cost is the cost of an hour of the pod at the provider.
type Cost struct {
	Hourly   float64
	Currency string
	// Known is false if the provider has no price.
	Known bool
}

// Pod has the values of the variable pod. They are read while expressions run, not before.
type Pod struct {
	Namespace, Name, Consumer string
	Labels, Annotations       *values.Texts
	Requests                  values.Amounts
}

// Variables are the variables that an expression reads while it runs. They can be set repeatedly, by one goroutine at a
// time.
type Variables struct {
	provider, pod   values.Record
	currentProvider providerValue
	currentPod      podValue
	// spent is the cost of the evaluations since NewVariables (MaxCostInAll), limit the cost at which the running one is stopped.
	spent, limit uint64
}

// providerValue and podValue are the Go values that records read.
type (
	providerValue struct {
		*Provider

		// cost returns the cost, known is the cost once an expression has read it.
		cost                    func() Cost
		known                   *Cost
		granted, assigned, free values.AmountMap
	}
	podValue struct {
		*Pod

		requests values.AmountMap
	}
)

var _ interpreter.Activation = (*Variables)(nil)

// NewVariables returns variables that are to be set before an expression reads them.
func NewVariables() *Variables {
	v := &Variables{}
	v.provider = values.Record{Schema: providerSchema, Of: &v.currentProvider}
	v.pod = values.Record{Schema: podSchema, Of: &v.currentPod}
	return v
}

// SetProvider sets the variable provider. cost is called when an expression reads the cost.
func (v *Variables) SetProvider(p *Provider, cost func() Cost) {
	v.currentProvider = providerValue{
		Provider: p, cost: cost, granted: values.AmountMap{Amounts: p.Granted}, assigned: values.AmountMap{Amounts: p.Assigned},
		free: values.AmountMap{Amounts: p.Free},
	}
}

// hourly returns the cost. It is computed once for each evaluation, which is charged for a read and not for the sum of all
// requests.
func (p *providerValue) hourly() *Cost {
	if p.known == nil {
		known := p.cost()
		p.known = &known
	}
	return p.known
}

// SetPod sets the variable pod.
func (v *Variables) SetPod(p *Pod) {
	v.currentPod = podValue{Pod: p, requests: values.AmountMap{Amounts: p.Requests}}
}

// spend charges an evaluation, and stops it at its limit.
func (v *Variables) spend(units uint64) {
	if v.spent += units; v.spent > MaxCostInAll {
		stop(errSpent.Error())
	} else if v.spent > v.limit {
		stop("cost limit exceeded")
	}
}

// ResolveName returns the variable of that name. It is part of interpreter.Activation.
func (v *Variables) ResolveName(name string) (any, bool) {
	switch name {
	case "provider":
		return &v.provider, true
	case "pod":
		return &v.pod, true
	}
	return nil, false
}

// Parent is part of interpreter.Activation.
func (v *Variables) Parent() interpreter.Activation { return nil }

// The types of the variables, as expressions see them.
var (
	textMap   = types.NewMapType(types.StringType, types.StringType)
	amountMap = types.NewMapType(types.StringType, types.DoubleType)

	resourcesSchema = values.NewSchema("brokering.Resources", map[string]values.Field{
		"granted":  field(amountMap, func(of any) (any, bool) { return &of.(*providerValue).granted, true }),
		"assigned": field(amountMap, func(of any) (any, bool) { return &of.(*providerValue).assigned, true }),
		"free":     field(amountMap, func(of any) (any, bool) { return &of.(*providerValue).free, true }),
	})
	kpisSchema     = values.NewSchema("brokering.KPIs", kpiFields())
	providerSchema = values.NewSchema("brokering.Provider", map[string]values.Field{
		"id":         field(types.StringType, func(of any) (any, bool) { return of.(*providerValue).ID, true }),
		"labels":     field(textMap, func(of any) (any, bool) { return of.(*providerValue).Labels.OrNone(), true }),
		"attributes": field(textMap, func(of any) (any, bool) { return of.(*providerValue).Attributes.OrNone(), true }),
		"hourlyCost": field(types.DoubleType, func(of any) (any, bool) { c := of.(*providerValue).hourly(); return c.Hourly, c.Known }),
		"currency":   field(types.StringType, func(of any) (any, bool) { c := of.(*providerValue).hourly(); return c.Currency, c.Known }),
		"kpis":       {Record: kpisSchema},
		"resources":  {Record: resourcesSchema},
	})
	podSchema = values.NewSchema("brokering.Pod", map[string]values.Field{
		"namespace":   field(types.StringType, func(of any) (any, bool) { return of.(*podValue).Namespace, true }),
		"name":        field(types.StringType, func(of any) (any, bool) { return of.(*podValue).Name, true }),
		"consumer":    field(types.StringType, func(of any) (any, bool) { return of.(*podValue).Consumer, true }),
		"labels":      field(textMap, func(of any) (any, bool) { return of.(*podValue).Labels.OrNone(), true }),
		"annotations": field(textMap, func(of any) (any, bool) { return of.(*podValue).Annotations.OrNone(), true }),
		"requests":    field(amountMap, func(of any) (any, bool) { return &of.(*podValue).requests, true }),
	})
)

// pathOf returns the path of names from the variable; nil if there is no such path.
func pathOf(variable string, names []string) *path {
	schema := map[string]*values.Schema{"provider": providerSchema, "pod": podSchema}[variable]
	if schema == nil {
		return nil
	}
	if found := schema.Path(names); found != nil {
		return &path{Path: found, ofPod: schema == podSchema}
	}
	return nil
}

// path is a values.Path from one of the variables.
type path struct {
	*values.Path

	ofPod bool
}

// value returns the value at the path; false if it is absent or unknown.
func (p *path) value(v *Variables) (ref.Val, bool) {
	if p.ofPod {
		return p.Value(&v.currentPod)
	}
	return p.Value(&v.currentProvider)
}

func field(of *types.Type, read func(of any) (any, bool)) values.Field {
	return values.Field{Type: of, Read: read}
}

func kpiFields() map[string]values.Field {
	fields := make(map[string]values.Field)
	for _, k := range kpi.All() {
		fields[k.Name] = field(types.DoubleType, func(of any) (any, bool) {
			value, known := of.(*providerValue).KPIs[k.Name]
			return value, known
		})
	}
	return fields
}

// fieldsOf lists the fields of every variable, for people.
func fieldsOf() string {
	var lists []string
	for _, s := range []*values.Schema{providerSchema, kpisSchema, resourcesSchema, podSchema} {
		name := map[*values.Schema]string{
			providerSchema: "provider", kpisSchema: "provider.kpis", resourcesSchema: "provider.resources", podSchema: "pod",
		}[s]
		lists = append(lists, name+" has "+strings.Join(s.Names(), ", "))
	}
	return strings.Join(lists, "; ")
}
