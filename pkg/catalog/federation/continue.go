package federation

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ErrContinue says that a token to continue a list by is not from that list of this version of the catalog.
var ErrContinue = errors.New("invalid continue")

// The kinds of lists. The first character is the version of what follows.
const (
	listOfProviders  = "1providers"
	listOfPlacements = "1placements"
	listOfPolicies   = "1policies"
)

// tokenAfter says where a list goes on: behind a key, whether or not there is still something of that name.
func tokenAfter(list, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\n" + key))
}

// keyOf is the key in a token; "" for the first page.
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

// podOf is the pod in a token; the zero name for the first page.
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
