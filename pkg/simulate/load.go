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
func Load(path string) (*Scenario, error) {
	merged, err := read(path, maxExtends)
	if err != nil {
		return nil, err
	}
	delete(merged, "extends")
	sc, err := parse(merged)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, named := merged["name"]; !named || sc.Name == "" {
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
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	own := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, &own); err != nil {
		return nil, fmt.Errorf("%s: must be a mapping of fields: %w", path, err)
	}
	extends, given := own["extends"]
	if !given {
		return own, nil
	}
	name, isText := extends.(string)
	if !isText || name == "" {
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

// Parse reads a scenario from YAML, and validates it. The error names the fields.
func Parse(text []byte) (*Scenario, error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var all any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, &all); err != nil {
		return nil, err
	}
	return parse(all)
}

func parse(all any) (*Scenario, error) {
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	sc := &Scenario{}
	unknown, err := kjson.UnmarshalStrict(text, sc)
	if err != nil {
		if found := faults(all, reflect.TypeFor[Scenario](), nil); len(found) > 0 {
			return nil, found.ToAggregate()
		}
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, errors.Join(unknown...)
	}
	if found := sc.validate(); len(found) > 0 {
		return nil, found.ToAggregate()
	}
	return sc, nil
}

// faults returns the innermost fields that cannot be read into a type. The errors of quantities and durations do not
// name their fields.
func faults(value any, into reflect.Type, at *field.Path) (found field.ErrorList) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	err = kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(into).Interface())
	if err == nil {
		return nil
	}
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	switch of := value.(type) {
	case map[string]any:
		found = faultsOfFields(of, into, at)
	case []any:
		if into.Kind() == reflect.Slice {
			for i := range of {
				found = append(found, faults(of[i], into.Elem(), at.Index(i))...)
			}
		}
	}
	if len(found) == 0 && at != nil {
		found = field.ErrorList{field.Invalid(at, value, err.Error())}
	}
	return found
}

func faultsOfFields(of map[string]any, into reflect.Type, at *field.Path) (found field.ErrorList) {
	switch into.Kind() { //nolint:exhaustive // Other kinds have no fields.
	case reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(of)) {
			found = append(found, faults(of[key], into.Elem(), at.Key(key))...)
		}
	case reflect.Struct:
		for i := range into.NumField() {
			name, _, _ := strings.Cut(into.Field(i).Tag.Get("json"), ",")
			if value, has := of[name]; has && name != "" {
				found = append(found, faults(value, into.Field(i).Type, at.Child(name))...)
			}
		}
	}
	return found
}
