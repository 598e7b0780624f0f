package values

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Amounts are amounts by resource name, in the units of an expression: cores, bytes, counts.
type Amounts interface {
	// Amount returns the amount of a resource, false if there is none.
	Amount(resource string) (float64, bool)
	// All returns every amount; the caller does not change it.
	All() map[string]float64
}

// AmountMap is the CEL map of Amounts. Looking one amount up builds no map; everything else does, once.
type AmountMap struct {
	Amounts

	all map[string]float64
}

var _ traits.Mapper = (*AmountMap)(nil)

func (a *AmountMap) whole() traits.Mapper {
	if a.all == nil {
		a.all = a.All()
	}
	return types.NewDynamicMap(types.DefaultTypeAdapter, a.all)
}

// Find returns the amount of a resource.
func (a *AmountMap) Find(name ref.Val) (ref.Val, bool) {
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name), false
	}
	amount, found := a.Amount(string(text))
	return types.Double(amount), found
}

// Get returns the amount of a resource, or an error.
func (a *AmountMap) Get(name ref.Val) ref.Val { return get(a, name) }

// Contains reports whether a resource is among the amounts.
func (a *AmountMap) Contains(name ref.Val) ref.Val { return contains(a, name) }

// ConvertToNative is the method of CEL's map.
func (a *AmountMap) ConvertToNative(to reflect.Type) (any, error) {
	return a.whole().ConvertToNative(to)
}

// ConvertToType is the method of CEL's map.
func (a *AmountMap) ConvertToType(to ref.Type) ref.Val { return a.whole().ConvertToType(to) }

// Equal compares the amounts.
func (a *AmountMap) Equal(other ref.Val) ref.Val { return a.whole().Equal(other) }

// Iterator goes over the names.
func (a *AmountMap) Iterator() traits.Iterator { return a.whole().Iterator() }

// Size returns how many there are.
func (a *AmountMap) Size() ref.Val { return a.whole().Size() }

// Type returns the type of maps.
func (a *AmountMap) Type() ref.Type { return types.MapType }

// Value returns the Go map.
func (a *AmountMap) Value() any { return a.All() }
