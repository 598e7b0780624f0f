package values

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Field is one field of a record: its type, and how to read it; false if it is unknown.
type Field struct {
	Type *types.Type
	Read func(of any) (any, bool)
	// Record is the schema of a field that is a record of the same Go value. Such a field has neither Type nor Read.
	Record *Schema
}

// Schema is a CEL object type with these fields.
type Schema struct {
	Type   *types.Type
	fields map[string]Field
}

// NewSchema returns an object type of that name.
func NewSchema(name string, fields map[string]Field) *Schema {
	for name, f := range fields {
		if record := f.Record; record != nil {
			read := func(of any) (any, bool) { return &Record{Schema: record, Of: of}, true }
			fields[name] = Field{Type: record.Type, Read: read, Record: record}
		}
	}
	return &Schema{Type: types.NewObjectType(name, traits.IndexerType|traits.FieldTesterType), fields: fields}
}

// Names returns the names of the fields, sorted.
func (s *Schema) Names() []string { return slices.Sorted(maps.Keys(s.fields)) }

// read returns a field of the record's Go value.
func (s *Schema) read(of any, name string) (any, error) {
	f, exists := s.fields[name]
	if !exists {
		return nil, fmt.Errorf("undefined field '%s'", name)
	}
	value, known := f.Read(of)
	if !known {
		return nil, fmt.Errorf("%s is unknown", name)
	}
	return value, nil
}

// Record is a CEL value with the fields of its schema, read from a Go value when they are asked for.
type Record struct {
	Schema *Schema
	Of     any
}

var (
	_ ref.Val            = (*Record)(nil)
	_ traits.Indexer     = (*Record)(nil)
	_ traits.FieldTester = (*Record)(nil)
)

// Get returns a field.
func (r *Record) Get(name ref.Val) ref.Val {
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name)
	}
	value, err := r.Schema.read(r.Of, string(text))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// IsSet reports whether a field is known.
func (r *Record) IsSet(name ref.Val) ref.Val {
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name)
	}
	_, err := r.Schema.read(r.Of, string(text))
	return types.Bool(err == nil)
}

// ConvertToNative is not needed by any function an expression can call.
func (r *Record) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s is not a %s", r.Schema.Type.TypeName(), to)
}

// ConvertToType only returns the type of the value.
func (r *Record) ConvertToType(to ref.Type) ref.Val {
	if to == types.TypeType {
		return r.Schema.Type
	}
	return types.NewErr("%s is not a %s", r.Schema.Type.TypeName(), to.TypeName())
}

// Equal compares identities: there is one provider and one pod.
func (r *Record) Equal(other ref.Val) ref.Val {
	o, ok := other.(*Record)
	return types.Bool(ok && o.Schema == r.Schema && o.Of == r.Of)
}

// Type returns the object type.
func (r *Record) Type() ref.Type { return r.Schema.Type }

// Value returns the record itself.
func (r *Record) Value() any { return r }

// TypeProvider adds schemas to the types that CEL and its libraries know.
type TypeProvider struct {
	types.Provider

	Schemas []*Schema
}

func (p TypeProvider) schemaOf(name string) *Schema {
	for _, s := range p.Schemas {
		if s.Type.TypeName() == name {
			return s
		}
	}
	return nil
}

// FindStructType returns the type of an object type.
func (p TypeProvider) FindStructType(name string) (*types.Type, bool) {
	if s := p.schemaOf(name); s != nil {
		return types.NewTypeTypeWithParam(s.Type), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames returns the fields of an object type.
func (p TypeProvider) FindStructFieldNames(name string) ([]string, bool) {
	if s := p.schemaOf(name); s != nil {
		return s.Names(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType returns the type of a field, and how to read it.
func (p TypeProvider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	s := p.schemaOf(name)
	if s == nil {
		return p.Provider.FindStructFieldType(name, fieldName)
	}
	f, exists := s.fields[fieldName]
	if !exists {
		return nil, false
	}
	return &types.FieldType{
		Type: f.Type,
		IsSet: func(of any) bool {
			_, known := f.Read(of.(*Record).Of)
			return known
		},
		GetFrom: func(of any) (any, error) { return s.read(of.(*Record).Of, fieldName) },
	}, true
}
