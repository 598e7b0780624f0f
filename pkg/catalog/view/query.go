package view

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
)

// Scope has the pods that a caller may see: all pods, the pods of a consumer, or the pods in a namespace; with both,
// the pods of the consumer in the namespace. The zero Scope has none.
type Scope struct {
	// All makes the other fields meaningless.
	All                 bool
	Consumer, Namespace string
}

func (s Scope) sees(p *api.Placement) bool {
	return s.All || (s.Consumer != "" || s.Namespace != "") &&
		(s.Consumer == "" || s.Consumer == p.Consumer) && (s.Namespace == "" || s.Namespace == p.Namespace)
}

// Page is a part of a list.
type Page struct {
	// Limit is the number of items; 0 means all.
	Limit int
	// Continue is the token of the previous page; "" for the first page.
	Continue string
}

// ProviderQuery selects providers. Empty fields select all.
type ProviderQuery struct {
	Page
	// Text is part of the id, the region or an attribute, in any case.
	Text, Region   string
	Ready, Enabled *bool
	// Consumer is the consumer that the caller acts for; it fills Selected.
	Consumer string
	// Public means that Text is searched for in the id and the region only.
	Public bool
}

// PlacementQuery selects placements in a Scope. Empty fields select all.
type PlacementQuery struct {
	Page
	Scope                         Scope
	Namespace, Provider, Consumer string
	Phase                         string
	// Text is part of "namespace/pod", or of the id of the provider or the consumer, in any case.
	Text string
	// Waiting selects pods that wait for a provider.
	Waiting bool
}

// filter returns false if the query selects nothing in its scope.
func (q *PlacementQuery) filter() (podindex.Filter, bool) {
	f := podindex.Filter{
		Namespace: q.Namespace, Provider: q.Provider, Consumer: q.Consumer,
		Phase: q.Phase, Text: strings.ToLower(q.Text), Waiting: q.Waiting,
	}
	if q.Scope.All {
		return f, true
	}
	if q.Scope.Consumer == "" && q.Scope.Namespace == "" {
		return f, false
	}
	return f, narrow(&f.Consumer, q.Scope.Consumer) && narrow(&f.Namespace, q.Scope.Namespace)
}

// narrow limits a field of a filter to the scope; it returns false if the two exclude each other.
func narrow(field *string, scope string) bool {
	if scope == "" {
		return true
	}
	if *field != "" && *field != scope {
		return false
	}
	*field = scope
	return true
}

// ErrContinue means that a token to continue a list is not from that list of this version of the catalog.
var ErrContinue = errors.New("invalid continue token")

// The kinds of lists. The first character is the version of the token.
const (
	listOfProviders  = "1providers"
	listOfPlacements = "1placements"
	listOfPolicies   = "1policies"
)

// tokenAfter returns the token of the page after a key. The item of that key may be removed meanwhile.
func tokenAfter(list, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\n" + key))
}

// keyOf returns the key in a token; "" for the first page.
func keyOf(list, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return "", fmt.Errorf("%w: %q", ErrContinue, token)
	}
	key, ok := strings.CutPrefix(string(text), list+"\n")
	if !ok || key == "" {
		return "", fmt.Errorf("%w: %q", ErrContinue, token)
	}
	return key, nil
}

// podOf returns the pod in a token; the zero name for the first page.
func podOf(token string) (types.NamespacedName, error) {
	key, err := keyOf(listOfPlacements, token)
	if err != nil || key == "" {
		return types.NamespacedName{}, err
	}
	namespace, name, ok := strings.Cut(key, "/")
	if !ok || namespace == "" || name == "" {
		return types.NamespacedName{}, fmt.Errorf("%w: %q", ErrContinue, token)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
