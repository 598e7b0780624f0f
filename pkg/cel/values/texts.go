package values

import (
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	// MaxText is the greatest length in bytes of a text that an expression reads or makes. Labels are shorter;
	// annotations need not be.
	MaxText = 1024
	// MaxTexts is the number of labels, annotations or attributes that an expression sees.
	MaxTexts = 512
)

// Texts is the CEL map of labels, annotations or attributes. Unlike CEL's own, iterating over it costs nothing before
// the first key.
type Texts struct {
	texts map[string]string
	// keys are sorted.
	keys []string
	// kept has the texts as CEL values, if they are read often.
	kept map[string]ref.Val
}

var _ traits.Mapper = (*Texts)(nil)

// NewTexts returns the part of texts that an expression sees: it omits texts of more than MaxText bytes and, if there
// are more than MaxTexts, keeps the first by their keys. The caller does not change the map afterwards.
func NewTexts(texts map[string]string) *Texts {
	keys := make([]string, 0, len(texts))
	for key, text := range texts {
		if len(text) <= MaxText && len(key) <= MaxText {
			keys = append(keys, key)
		}
	}
	keys = smallest(keys, MaxTexts)
	if len(keys) < len(texts) {
		seen := make(map[string]string, len(keys))
		for _, key := range keys {
			seen[key] = texts[key]
		}
		texts = seen
	}
	return &Texts{texts: texts, keys: keys}
}

// Keep makes the CEL values of all texts, so that reading one allocates nothing. It returns t.
func (t *Texts) Keep() *Texts {
	t.kept = make(map[string]ref.Val, len(t.keys))
	for _, key := range t.keys {
		t.kept[key] = types.String(t.texts[key])
	}
	return t
}

// smallest returns at most so many of the keys, sorted. It does not sort the others.
func smallest(keys []string, most int) []string {
	if len(keys) <= most {
		slices.Sort(keys)
		return keys
	}
	kept := append(make([]string, 0, 2*most), keys[:most]...)
	slices.Sort(kept)
	for _, key := range keys[most:] {
		if key >= kept[most-1] {
			continue
		}
		if kept = append(kept, key); len(kept) == 2*most {
			slices.Sort(kept)
			kept = kept[:most]
		}
	}
	slices.Sort(kept)
	return kept[:most]
}

// OrNone is for a nil pointer: there are no texts.
func (t *Texts) OrNone() *Texts {
	if t == nil {
		return &Texts{}
	}
	return t
}

// Find returns the text of a key.
func (t *Texts) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	if t.kept != nil {
		text, found := t.kept[string(name)]
		return text, found
	}
	text, found := t.texts[string(name)]
	return types.String(text), found
}

// Get returns the text of a key, or an error.
func (t *Texts) Get(key ref.Val) ref.Val { return get(t, key) }

// get is Get of a map that has Find.
func get(from traits.Mapper, key ref.Val) ref.Val {
	value, found := from.Find(key)
	if !found && !types.IsError(value) {
		return types.NewErr("no such key: %v", key)
	}
	return value
}

// Contains reports whether there is a text of that key.
func (t *Texts) Contains(key ref.Val) ref.Val { return contains(t, key) }

func contains(in traits.Mapper, key ref.Val) ref.Val {
	value, found := in.Find(key)
	if types.IsError(value) {
		return value
	}
	return types.Bool(found)
}

// Equal compares with another map of texts.
func (t *Texts) Equal(other ref.Val) ref.Val { return t.whole().Equal(other) }

// Iterator goes over the keys, sorted.
func (t *Texts) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, t.keys).Iterator()
}

// Size returns how many there are.
func (t *Texts) Size() ref.Val { return types.Int(len(t.keys)) }

func (t *Texts) whole() traits.Mapper {
	return types.NewStringStringMap(types.DefaultTypeAdapter, t.texts)
}

// ConvertToNative is the method of CEL's own map.
func (t *Texts) ConvertToNative(to reflect.Type) (any, error) { return t.whole().ConvertToNative(to) }

// ConvertToType is the method of CEL's own map.
func (t *Texts) ConvertToType(to ref.Type) ref.Val { return t.whole().ConvertToType(to) }

// Type returns the type of maps.
func (t *Texts) Type() ref.Type { return types.MapType }

// Value returns the Go map.
func (t *Texts) Value() any { return t.texts }
