package kubectl

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
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
		"The connection to the server 192.0.2.1:6443 was refused - did you specify the right host or port?": fmt.Errorf("pods: %w",
			request(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})),
		"Unable to connect to the server: x509: certificate signed by unknown authority": request(x509.UnknownAuthorityError{}),
		"error: request timed out (--request-timeout): the server 192.0.2.1:6443 did not answer": request(
			context.DeadlineExceeded),
		`error: parse "a b": invalid URL`:                       &url.Error{Op: "parse", URL: "a b", Err: errors.New("invalid URL")},
		"error: You must be logged in to the server (no token)": kerrors.NewUnauthorized("no token"),
	} {
		require.Equal(t, []string{want}, Words(err))
	}
}

// request is the error of a request to an API server.
func request(err error) error {
	return &url.Error{Op: "Get", URL: "https://192.0.2.1:6443/api/v1/pods?limit=500", Err: err}
}

func TestEachFailureHasItsLine(t *testing.T) {
	require.Equal(t, []string{"error: one", "error: two", "error: three"},
		Words(errors.Join(errors.New("one"), errors.Join(errors.New("two"), errors.New("three")))))
}
