package criteria

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// field is one field of a record: its type, and how to read it; false if it is unknown.
type field struct {
	declared *types.Type
	read     func(of any) (any, bool)
}

// schema is a CEL object type with these fields.
type schema struct {
	object *types.Type
	fields map[string]field
}

func newSchema(name string, fields map[string]field) *schema {
	return &schema{object: types.NewObjectType(name, traits.IndexerType|traits.FieldTesterType), fields: fields}
}

// names returns the names of the fields, sorted.
func (s *schema) names() []string { return slices.Sorted(maps.Keys(s.fields)) }

// read returns a field of what a record is of.
func (s *schema) read(of any, name string) (any, error) {
	f, exists := s.fields[name]
	if !exists {
		return nil, fmt.Errorf("undefined field '%s'", name)
	}
	value, known := f.read(of)
	if !known {
		return nil, fmt.Errorf("%s is unknown", name)
	}
	return value, nil
}

// record is a CEL value with the fields of its schema, read from a Go value when they are asked for.
type record struct {
	schema *schema
	of     any
}

var (
	_ ref.Val            = (*record)(nil)
	_ traits.Indexer     = (*record)(nil)
	_ traits.FieldTester = (*record)(nil)
)

// Get returns a field.
func (r *record) Get(name ref.Val) ref.Val {
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name)
	}
	value, err := r.schema.read(r.of, string(text))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// IsSet reports whether a field is known.
func (r *record) IsSet(name ref.Val) ref.Val {
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name)
	}
	_, err := r.schema.read(r.of, string(text))
	return types.Bool(err == nil)
}

// ConvertToNative is not needed by any function an expression can call.
func (r *record) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s is not a %s", r.schema.object.TypeName(), to)
}

// ConvertToType gives the type of the value, and nothing else.
func (r *record) ConvertToType(to ref.Type) ref.Val {
	if to == types.TypeType {
		return r.schema.object
	}
	return types.NewErr("%s is not a %s", r.schema.object.TypeName(), to.TypeName())
}

// Equal compares identities: there is one provider and one pod.
func (r *record) Equal(other ref.Val) ref.Val {
	o, ok := other.(*record)
	return types.Bool(ok && o.schema == r.schema && o.of == r.of)
}

// Type returns the object type.
func (r *record) Type() ref.Type { return r.schema.object }

// Value returns the record itself.
func (r *record) Value() any { return r }

// amounts is the CEL map of resource names to amounts. Looking one amount up builds no map; everything else does, once.
type amounts struct {
	Amounts

	all map[string]float64
}

var _ traits.Mapper = (*amounts)(nil)

func (a *amounts) whole() traits.Mapper {
	if a.all == nil {
		a.all = a.All()
	}
	return types.NewDynamicMap(types.DefaultTypeAdapter, a.all)
}

// Find returns the amount of a resource.
func (a *amounts) Find(name ref.Val) (ref.Val, bool) {
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name), false
	}
	amount, found := a.Amount(string(text))
	return types.Double(amount), found
}

// Get returns the amount of a resource, or an error.
func (a *amounts) Get(name ref.Val) ref.Val { return get(a, name) }

// Contains reports whether a resource is among the amounts.
func (a *amounts) Contains(name ref.Val) ref.Val { return contains(a, name) }

// ConvertToNative is that of the map.
func (a *amounts) ConvertToNative(to reflect.Type) (any, error) {
	return a.whole().ConvertToNative(to)
}

// ConvertToType is that of the map.
func (a *amounts) ConvertToType(to ref.Type) ref.Val { return a.whole().ConvertToType(to) }

// Equal compares the amounts.
func (a *amounts) Equal(other ref.Val) ref.Val { return a.whole().Equal(other) }

// Iterator goes over the names.
func (a *amounts) Iterator() traits.Iterator { return a.whole().Iterator() }

// Size returns how many there are.
func (a *amounts) Size() ref.Val { return a.whole().Size() }

// Type returns the type of maps.
func (a *amounts) Type() ref.Type { return types.MapType }

// Value returns the Go map.
func (a *amounts) Value() any { return a.All() }

// typeProvider adds the schemas to those that CEL and its libraries know.
type typeProvider struct{ types.Provider }

func schemaOf(name string) *schema {
	for _, s := range []*schema{providerSchema, podSchema, kpisSchema, resourcesSchema} {
		if s.object.TypeName() == name {
			return s
		}
	}
	return nil
}

// FindStructType returns the type of an object type.
func (p typeProvider) FindStructType(name string) (*types.Type, bool) {
	if s := schemaOf(name); s != nil {
		return types.NewTypeTypeWithParam(s.object), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames returns the fields of an object type.
func (p typeProvider) FindStructFieldNames(name string) ([]string, bool) {
	if s := schemaOf(name); s != nil {
		return s.names(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType returns the type of a field, and how to read it.
func (p typeProvider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	s := schemaOf(name)
	if s == nil {
		return p.Provider.FindStructFieldType(name, fieldName)
	}
	f, exists := s.fields[fieldName]
	if !exists {
		return nil, false
	}
	return &types.FieldType{
		Type: f.declared,
		IsSet: func(of any) bool {
			_, known := f.read(of.(*record).of)
			return known
		},
		GetFrom: func(of any) (any, error) { return s.read(of.(*record).of, fieldName) },
	}, true
}

// fieldsOf lists the fields of every variable, for people.
func fieldsOf() string {
	var lists []string
	for _, s := range []*schema{providerSchema, kpisSchema, resourcesSchema, podSchema} {
		name := map[*schema]string{
			providerSchema: "provider", kpisSchema: "provider.kpis", resourcesSchema: "provider.resources", podSchema: "pod",
		}[s]
		lists = append(lists, name+" has "+strings.Join(s.names(), ", "))
	}
	return strings.Join(lists, "; ")
}
