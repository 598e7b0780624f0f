package histories

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// typeOf is the type by which a server knows objects.
func typeOf[T any]() reflect.Type { return reflect.TypeFor[*T]() }

func containsQuota(err error) bool { return strings.Contains(err.Error(), "quota usage exceeded") }

// sortedKeys are the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }
