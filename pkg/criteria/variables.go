package criteria

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
)

// Amounts are amounts by resource name, in the units of an expression: cores, bytes, counts.
type Amounts interface {
	// Amount returns the amount of a resource, false if it is not among them.
	Amount(resource string) (float64, bool)
	// All returns every amount; the caller does not change it.
	All() map[string]float64
}

// Provider is what the variable provider is made of. It is read while expressions run, not before.
type Provider struct {
	ID                      string
	Labels, Attributes      *Texts
	KPIs                    kpi.Values
	Granted, Assigned, Free Amounts
}

// Pod is what the variable pod is made of. It is read while expressions run, not before.
type Pod struct {
	Namespace, Name, Consumer string
	Labels, Annotations       *Texts
	Requests                  Amounts
}

// Variables are what an expression reads while it runs. They can be set again and again, by one goroutine at a time.
type Variables struct {
	provider, pod   record
	currentProvider providerValue
	currentPod      podValue
	// spent is what evaluations cost since Renew, limit at what the one that runs is stopped.
	spent, limit uint64
}

// providerValue and podValue are what records read.
type (
	providerValue struct {
		*Provider

		granted, assigned, free amounts
	}
	podValue struct {
		*Pod

		requests amounts
	}
)

var _ interpreter.Activation = (*Variables)(nil)

// NewVariables returns variables that are to be set before an expression reads them.
func NewVariables() *Variables {
	v := &Variables{}
	v.provider = record{schema: providerSchema, of: &v.currentProvider}
	v.pod = record{schema: podSchema, of: &v.currentPod}
	return v
}

// SetProvider sets the variable provider.
func (v *Variables) SetProvider(p *Provider) {
	v.currentProvider = providerValue{
		Provider: p, granted: amounts{Amounts: p.Granted}, assigned: amounts{Amounts: p.Assigned}, free: amounts{Amounts: p.Free},
	}
}

// SetPod sets the variable pod.
func (v *Variables) SetPod(p *Pod) {
	v.currentPod = podValue{Pod: p, requests: amounts{Amounts: p.Requests}}
}

// Renew begins to count anew what evaluations cost in all (MaxCostInAll).
func (v *Variables) Renew() { v.spent = 0 }

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

	resourcesSchema = newSchema("brokering.Resources", map[string]field{
		"granted":  {amountMap, func(of any) (any, bool) { return &of.(*providerValue).granted, true }},
		"assigned": {amountMap, func(of any) (any, bool) { return &of.(*providerValue).assigned, true }},
		"free":     {amountMap, func(of any) (any, bool) { return &of.(*providerValue).free, true }},
	})
	kpisSchema     = newSchema("brokering.KPIs", kpiFields())
	providerSchema = newSchema("brokering.Provider", map[string]field{
		"id":         {types.StringType, func(of any) (any, bool) { return of.(*providerValue).ID, true }},
		"labels":     {textMap, func(of any) (any, bool) { return of.(*providerValue).Labels.orNone(), true }},
		"attributes": {textMap, func(of any) (any, bool) { return of.(*providerValue).Attributes.orNone(), true }},
		"kpis":       {kpisSchema.object, func(of any) (any, bool) { return &record{kpisSchema, of}, true }},
		"resources":  {resourcesSchema.object, func(of any) (any, bool) { return &record{resourcesSchema, of}, true }},
	})
	podSchema = newSchema("brokering.Pod", map[string]field{
		"namespace":   {types.StringType, func(of any) (any, bool) { return of.(*podValue).Namespace, true }},
		"name":        {types.StringType, func(of any) (any, bool) { return of.(*podValue).Name, true }},
		"consumer":    {types.StringType, func(of any) (any, bool) { return of.(*podValue).Consumer, true }},
		"labels":      {textMap, func(of any) (any, bool) { return of.(*podValue).Labels.orNone(), true }},
		"annotations": {textMap, func(of any) (any, bool) { return of.(*podValue).Annotations.orNone(), true }},
		"requests":    {amountMap, func(of any) (any, bool) { return &of.(*podValue).requests, true }},
	})
)

func kpiFields() map[string]field {
	fields := make(map[string]field)
	for _, k := range kpi.All() {
		fields[k.Name] = field{types.DoubleType, func(of any) (any, bool) {
			value, known := of.(*providerValue).KPIs[k.Name]
			return value, known
		}}
	}
	return fields
}
