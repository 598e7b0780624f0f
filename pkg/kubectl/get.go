package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (s *Session) printView(ctx context.Context, v *view, q *Query) error {
	if q.Output != outputTable && !slices.Contains(Outputs(), q.Output) {
		return fmt.Errorf("--output=%s: use one of %s", q.Output, strings.Join(Outputs(), ", "))
	}
	objects, missing := s.read(ctx, v, q)
	if len(objects) == 0 && missing != nil {
		return missing
	}
	return errors.Join(s.print(v, q, objects), missing)
}

// read returns the objects that a query selects. For each name that does not exist it returns an error beside the other
// objects.
func (s *Session) read(ctx context.Context, v *view, q *Query) ([]client.Object, error) {
	if len(q.Names) == 0 {
		all, err := s.list(ctx, v.list, v.options...)
		return slices.DeleteFunc(all, func(o client.Object) bool { return !v.matches(o) }), err
	}
	var found []client.Object
	var failures []error
	for _, name := range q.Names {
		o, ok := v.one.DeepCopyObject().(client.Object)
		if !ok {
			return nil, errNoObject(v.one)
		}
		if err := s.get(ctx, client.ObjectKey{Namespace: v.namespace, Name: name}, o); err != nil {
			failures = append(failures, err)
			continue
		}
		if !v.matches(o) {
			failures = append(failures, fmt.Errorf("%s %s", name, v.unmatched))
			continue
		}
		found = append(found, o)
	}
	return found, errors.Join(failures...)
}

// Outputs returns the output formats of get, besides the table.
func Outputs() []string { return []string{outputJSON, outputName, outputWide, outputYAML} }

// Output formats.
const (
	outputTable = ""
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

// Query selects the objects that get prints.
type Query struct {
	// Names of objects; none means all.
	Names []string
	// AllNamespaces selects pods of all namespaces, not only of the session's.
	AllNamespaces bool
	// Labels selects by label; nil means all.
	Labels labels.Selector
	// Provider is the cluster id of the provider whose placements are selected.
	Provider string
	// Consumer is the cluster id of the consumer whose placements are selected. For providers it adds a column: if that
	// consumer selected them.
	Consumer string
	// Node is the name of the broker's node.
	Node string

	Output    string
	NoHeaders bool
}

func (q *Query) validate() error {
	if len(q.Names) > 0 && q.Labels != nil {
		return errors.New("names cannot be combined with --selector")
	}
	if len(q.Names) > 0 && q.AllNamespaces {
		return errors.New("names cannot be combined with --all-namespaces")
	}
	return nil
}

// selected adds the selectors that the API server supports.
func (q *Query) selected(options ...client.ListOption) []client.ListOption {
	if q.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: q.Labels})
	}
	return options
}

func (q *Query) matches(o client.Object) bool {
	return (len(q.Names) == 0 || slices.Contains(q.Names, o.GetName())) &&
		(q.Labels == nil || q.Labels.Matches(labels.Set(o.GetLabels())))
}
