package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWords(t *testing.T) {
	resource := schema.GroupResource{Group: "brokering.liqo.io", Resource: "providerclusters"}
	for want, err := range map[string]error{
		"error: a message in two lines": errors.New("a message\nin two lines"),
		"error: interrupted":            fmt.Errorf("asking: %w", context.Canceled),
		`Error from server (NotFound): providerclusters.brokering.liqo.io "p" not found`: kerrors.NewNotFound(resource, "p"),
		`Error from server (Forbidden): consumer c: providerclusters.brokering.liqo.io "p" is forbidden: no`: fmt.Errorf("consumer c: %w",
			kerrors.NewForbidden(resource, "p", errors.New("no"))),
		"error: the server could not find the requested resource (get providerclusters.brokering.liqo.io): " +
			"are the CRDs of the broker installed there?": kerrors.NewGenericServerResponse(
			http.StatusNotFound, "get", resource, "", "404 page not found", 0, true),
	} {
		require.Equal(t, []string{want}, Words(err))
	}
}

func TestEachFailureHasItsLine(t *testing.T) {
	require.Equal(t, []string{"error: one", "error: two", "error: three"},
		Words(errors.Join(errors.New("one"), errors.Join(errors.New("two"), errors.New("three")))))
}
