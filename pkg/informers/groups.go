package informers

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Groups are values by the name of the object that they come from; each belongs to one group. The zero value is not
// usable.
type Groups[T any] struct {
	groups map[string]map[types.NamespacedName]T
	home   map[types.NamespacedName]string
}

// NewGroups returns Groups without values.
func NewGroups[T any]() *Groups[T] {
	return &Groups[T]{groups: map[string]map[types.NamespacedName]T{}, home: map[types.NamespacedName]string{}}
}

// Set moves a value into a group, and returns the changed groups: one or two.
func (g *Groups[T]) Set(name types.NamespacedName, group string, value T) []string {
	concerned := g.Remove(name)
	g.home[name] = group
	if g.groups[group] == nil {
		g.groups[group] = map[types.NamespacedName]T{}
	}
	g.groups[group][name] = value
	if !slices.Contains(concerned, group) {
		concerned = append(concerned, group)
	}
	return concerned
}

// Remove deletes a value, and returns the group that it was in, if there was one.
func (g *Groups[T]) Remove(name types.NamespacedName) []string {
	group, ok := g.home[name]
	if !ok {
		return nil
	}
	delete(g.home, name)
	if delete(g.groups[group], name); len(g.groups[group]) == 0 {
		delete(g.groups, group)
	}
	return []string{group}
}

// Of returns the values of a group, by name.
func (g *Groups[T]) Of(group string) []T {
	values := make([]T, 0, len(g.groups[group]))
	for _, name := range slices.SortedFunc(maps.Keys(g.groups[group]), Compare) {
		values = append(values, g.groups[group][name])
	}
	return values
}

// Compare orders names by namespace, then by name.
func Compare(x, y types.NamespacedName) int {
	return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
}
