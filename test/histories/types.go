package histories

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// typeOf returns the type under which a server stores objects.
func typeOf[T any]() reflect.Type { return reflect.TypeFor[*T]() }

func containsQuota(err error) bool { return strings.Contains(err.Error(), "quota usage exceeded") }

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }
