package criteria

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
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
	ID                 string
	Labels, Attributes map[string]string
	// KPIs by the names below; one that is unknown is absent.
	KPIs                    map[string]float64
	Granted, Assigned, Free Amounts
}

// Names of the KPIs. Uptimes and the failure rate are 0 to 1.
const (
	Uptime1h            = "uptime1h"
	Uptime24h           = "uptime24h"
	Uptime7d            = "uptime7d"
	Uptime30d           = "uptime30d"
	LatencyMilliseconds = "latencyMilliseconds"
	PodStartP50Seconds  = "podStartP50Seconds"
	PodStartP90Seconds  = "podStartP90Seconds"
	FailureRate         = "failureRate"
)

// MaxText is how many bytes of one text an expression should get to see: the work of a regular expression, which no
// cost stops midway, grows with it. Labels are shorter; annotations need not be.
const MaxText = 1024

// Pod is what the variable pod is made of. It is read while expressions run, not before.
type Pod struct {
	Namespace, Name, Consumer string
	Labels, Annotations       map[string]string
	Requests                  Amounts
}

// Variables are what an expression reads while it runs. They can be set again and again, by one goroutine at a time.
type Variables struct {
	provider, pod record
	// spent is what evaluations cost since Renew, in CEL's units.
	spent uint64
}

var _ interpreter.Activation = (*Variables)(nil)

// NewVariables returns variables that are to be set before an expression reads them.
func NewVariables() *Variables {
	return &Variables{
		provider: record{schema: providerSchema, of: &Provider{}},
		pod:      record{schema: podSchema, of: &Pod{}},
	}
}

// SetProvider sets the variable provider.
func (v *Variables) SetProvider(p *Provider) { v.provider.of = p }

// SetPod sets the variable pod.
func (v *Variables) SetPod(p *Pod) { v.pod.of = p }

// Renew begins to count anew what evaluations cost in all (MaxCostInAll).
func (v *Variables) Renew() { v.spent = 0 }

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
		"granted":  {amountMap, func(of any) (any, bool) { return amounts{of.(*Provider).Granted}, true }},
		"assigned": {amountMap, func(of any) (any, bool) { return amounts{of.(*Provider).Assigned}, true }},
		"free":     {amountMap, func(of any) (any, bool) { return amounts{of.(*Provider).Free}, true }},
	})
	kpisSchema = newSchema("brokering.KPIs", map[string]field{
		Uptime1h:            kpi(Uptime1h),
		Uptime24h:           kpi(Uptime24h),
		Uptime7d:            kpi(Uptime7d),
		Uptime30d:           kpi(Uptime30d),
		LatencyMilliseconds: kpi(LatencyMilliseconds),
		PodStartP50Seconds:  kpi(PodStartP50Seconds),
		PodStartP90Seconds:  kpi(PodStartP90Seconds),
		FailureRate:         kpi(FailureRate),
	})
	providerSchema = newSchema("brokering.Provider", map[string]field{
		"id":         {types.StringType, func(of any) (any, bool) { return of.(*Provider).ID, true }},
		"labels":     {textMap, func(of any) (any, bool) { return of.(*Provider).Labels, true }},
		"attributes": {textMap, func(of any) (any, bool) { return of.(*Provider).Attributes, true }},
		"kpis":       {kpisSchema.object, func(of any) (any, bool) { return &record{kpisSchema, of}, true }},
		"resources":  {resourcesSchema.object, func(of any) (any, bool) { return &record{resourcesSchema, of}, true }},
	})
	podSchema = newSchema("brokering.Pod", map[string]field{
		"namespace":   {types.StringType, func(of any) (any, bool) { return of.(*Pod).Namespace, true }},
		"name":        {types.StringType, func(of any) (any, bool) { return of.(*Pod).Name, true }},
		"consumer":    {types.StringType, func(of any) (any, bool) { return of.(*Pod).Consumer, true }},
		"labels":      {textMap, func(of any) (any, bool) { return of.(*Pod).Labels, true }},
		"annotations": {textMap, func(of any) (any, bool) { return of.(*Pod).Annotations, true }},
		"requests":    {amountMap, func(of any) (any, bool) { return amounts{of.(*Pod).Requests}, true }},
	})
)

func kpi(name string) field {
	return field{types.DoubleType, func(of any) (any, bool) {
		value, known := of.(*Provider).KPIs[name]
		return value, known
	}}
}
