package histories

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// mergeInto applies a JSON merge patch (RFC 7386) to an object. It changes nothing that the object refers to, such as a map:
// that is replaced. To encode and decode the whole object, as an API server does, took a third of a history's time.
func mergeInto(object any, patch []byte) error { return merge(reflect.ValueOf(object).Elem(), patch) }

// merge applies a patch to a value, which must be addressable.
func merge(into reflect.Value, patch json.RawMessage) error {
	if string(patch) == "null" {
		into.SetZero()
		return nil
	}
	if kind := into.Kind(); patch[0] != '{' || into.Addr().Type().Implements(unmarshaler) ||
		kind != reflect.Struct && kind != reflect.Map && kind != reflect.Pointer {
		into.SetZero() // A list replaces the previous one.
		return json.Unmarshal(patch, into.Addr().Interface())
	}
	if into.Kind() == reflect.Pointer {
		fresh := reflect.New(into.Type().Elem())
		if !into.IsNil() {
			fresh.Elem().Set(into.Elem())
		}
		into.Set(fresh)
		return merge(into.Elem(), patch)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil {
		return err
	}
	if into.Kind() == reflect.Map {
		return mergeMap(into, members)
	}
	fields := fieldsOf(into.Type())
	for name, member := range members {
		index, known := fields[name]
		if !known {
			continue // As when an object with an unknown field is decoded.
		}
		if err := merge(into.FieldByIndex(index), member); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// mergeMap applies the members of a patch to a map with keys of a kind of string.
func mergeMap(into reflect.Value, members map[string]json.RawMessage) error {
	fresh := reflect.MakeMapWithSize(into.Type(), into.Len()+len(members))
	for all := into.MapRange(); all.Next(); {
		fresh.SetMapIndex(all.Key(), all.Value())
	}
	into.Set(fresh)
	for name, member := range members {
		key := reflect.ValueOf(name).Convert(into.Type().Key())
		if string(member) == "null" {
			into.SetMapIndex(key, reflect.Value{})
			continue
		}
		element := reflect.New(into.Type().Elem()).Elem()
		if before := into.MapIndex(key); before.IsValid() {
			element.Set(before)
		}
		if err := merge(element, member); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		into.SetMapIndex(key, element)
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// fieldIndexes has the result of fieldsOf by type: a map from names to indexes.
var fieldIndexes sync.Map

// fieldsOf returns the indexes of the fields of a struct by their names in JSON, with the fields of embedded structs.
func fieldsOf(of reflect.Type) map[string][]int {
	if known, is := fieldIndexes.Load(of); is {
		return known.(map[string][]int)
	}
	fields := map[string][]int{}
	for _, field := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" && field.IsExported() {
			fields[name] = field.Index
		}
	}
	fieldIndexes.Store(of, fields)
	return fields
}
