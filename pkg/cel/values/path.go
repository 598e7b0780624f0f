package values

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Path is a chain of names from a record to a value in it: a field, a field of a record in the record, or a key of a
// map that is a field. Following it returns the same value as CEL does for these names, without a value for every link.
type Path struct {
	read func(of any) (any, bool)
	// key is the key in the map that was read; nil if the field itself is the value.
	key ref.Val
}

// Path returns the path of the names; nil if they are no path to a value.
func (s *Schema) Path(names []string) *Path {
	if len(names) == 0 {
		return nil
	}
	f, exists := s.fields[names[0]]
	switch rest := names[1:]; {
	case !exists:
		return nil
	case f.Record != nil:
		return f.Record.Path(rest)
	case len(rest) == 0:
		return &Path{read: f.Read}
	case len(rest) == 1 && f.Type.Kind() == types.MapKind:
		return &Path{read: f.Read, key: types.String(rest[0])}
	}
	return nil
}

// Value returns the value at the path; false if it is absent or unknown.
func (p *Path) Value(of any) (ref.Val, bool) {
	value, known := p.read(of)
	if !known {
		return nil, false
	}
	if p.key != nil {
		return value.(traits.Mapper).Find(p.key)
	}
	return types.DefaultTypeAdapter.NativeToValue(value), true
}
