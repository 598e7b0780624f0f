package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxExtends is how many files may extend each other.
const maxExtends = 10

// Load reads a scenario from a YAML file, and validates it. A file with "extends: other.yaml", a path from its own
// directory, has the top-level fields of that file, except those that it sets itself. The error names the file and the
// fields.
//
// With a base, which FromCluster returns, the scenario begins with its pods, and has its start, providers and policies,
// unless the file sets them.
func Load(path string, base *Scenario) (*Scenario, error) {
	all, err := read(path, maxExtends)
	if err != nil {
		return nil, err
	}
	sc, err := parse(all, base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if sc.Name == "" {
		sc.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return sc, nil
}

// read returns the top-level fields of a file and of those that it extends.
func read(path string, depth int) (map[string]any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("%s: extends: more than %d files extend each other", path, maxExtends)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	own, err := fieldsOf(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	extends, given := own["extends"]
	if !given {
		return own, nil
	}
	delete(own, "extends")
	name, _ := extends.(string)
	if name == "" {
		return nil, fmt.Errorf("%s: extends: must be the path of another scenario", path)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(path), name)
	}
	base, err := read(name, depth-1)
	if err != nil {
		return nil, err
	}
	delete(base, "name")
	maps.Copy(base, own)
	return base, nil
}

func fieldsOf(text []byte) (fields map[string]any, err error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, &fields); err != nil {
		return nil, fmt.Errorf("must be a mapping of fields: %w", err)
	}
	return fields, nil
}

// Parse reads a scenario from YAML, and validates it. The error names the fields.
func Parse(text []byte) (*Scenario, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	return parse(fields, nil)
}

func parse(fields map[string]any, base *Scenario) (*Scenario, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	sc := &Scenario{}
	switch unknown, err := kjson.UnmarshalStrict(text, sc); {
	case err != nil:
		return nil, unreadable(fields, reflect.TypeFor[Scenario](), nil).ToAggregate()
	case len(unknown) > 0:
		return nil, errors.Join(unknown...)
	}
	sc.beginWith(base)
	if found := sc.validate(); len(found) > 0 {
		return nil, found.ToAggregate()
	}
	return sc, nil
}

// unreadable returns the innermost fields that cannot be read into a type. The errors of quantities and durations do not
// name their fields.
func unreadable(value any, into reflect.Type, at *field.Path) (found field.ErrorList) {
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(into).Interface())
	}
	if err == nil {
		return nil
	}
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	fields, _ := value.(map[string]any)
	items, _ := value.([]any)
	switch into.Kind() { //nolint:exhaustive // Other kinds have no parts.
	case reflect.Slice:
		for i := range items {
			found = append(found, unreadable(items[i], into.Elem(), at.Index(i))...)
		}
	case reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			found = append(found, unreadable(fields[key], into.Elem(), at.Key(key))...)
		}
	case reflect.Struct:
		for i := range into.NumField() {
			name, _, _ := strings.Cut(into.Field(i).Tag.Get("json"), ",")
			if value, has := fields[name]; has && name != "" {
				found = append(found, unreadable(value, into.Field(i).Type, at.Child(name))...)
			}
		}
	}
	if len(found) == 0 {
		found = field.ErrorList{field.Invalid(at, value, err.Error())}
	}
	return found
}
