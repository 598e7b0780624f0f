package cli

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Outputs returns the forms that get can print in, besides the table.
func Outputs() []string { return []string{OutputJSON, OutputName, OutputWide, OutputYAML} }

// The forms of an answer.
const (
	OutputTable = ""
	OutputWide  = "wide"
	OutputJSON  = "json"
	OutputYAML  = "yaml"
	OutputName  = "name"
)

// Query is what get is asked for.
type Query struct {
	// Names of objects; none means all.
	Names []string
	// AllNamespaces looks in all of them, not only in that of the session.
	AllNamespaces bool
	// Labels are those of the objects; nil means any.
	Labels labels.Selector
	// Provider narrows placements to one provider, by id.
	Provider string
	// Consumer narrows placements to one consumer, by id; of providers it asks which ones that consumer selected.
	Consumer string
	// Node is the broker's, to which pods are bound.
	Node string

	Output    string
	NoHeaders bool
	// Watch goes on to show what changes.
	Watch bool
}

func (q *Query) validate() error {
	if len(q.Names) > 0 && q.Labels != nil {
		return errors.New("names and a selector exclude each other")
	}
	if len(q.Names) > 0 && q.AllNamespaces {
		return errors.New("names cannot be asked for across all namespaces")
	}
	return nil
}

// narrow is what of the query the API server does.
func (q *Query) narrow(options ...client.ListOption) []client.ListOption {
	if q.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: q.Labels})
	}
	return options
}

// wants says whether the query asks for an object, by name and labels.
func (q *Query) wants(o client.Object) bool {
	return (len(q.Names) == 0 || slices.Contains(q.Names, o.GetName())) &&
		(q.Labels == nil || q.Labels.Matches(labels.Set(o.GetLabels())))
}
