package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Cells of a table are never empty, so that programs can split the columns.
const (
	none    = "<none>"
	unknown = "<unknown>"
)

// shown returns a text of the API without characters that a terminal interprets or that hide others. Some texts quote
// annotations of pods. The formats for programs, JSON and YAML, have all characters.
func shown(text string) string { return untrusted.Lines(printers.EscapeTerminal(text)) }

// age returns the time since a moment in kubectl's form.
func age(now, since time.Time) string {
	if since.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(since))
}

func errNoObject(o runtime.Object) error { return fmt.Errorf("%T is not an API object", o) }

// Words returns the text of an error in kubectl's form, one line for each joined error.
func Words(err error) []string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var lines []string
		for _, err := range joined.Unwrap() {
			lines = append(lines, Words(err)...)
		}
		return lines
	}
	return []string{shown(strings.Join(strings.Fields(word(err)), " "))}
}

func word(err error) string {
	var status kerrors.APIStatus
	request := requestOf(err)
	switch {
	case errors.Is(err, context.Canceled):
		return "error: interrupted"
	case errors.Is(err, context.DeadlineExceeded) && request != nil:
		return "error: request timed out (--request-timeout): the server " + serverOf(request) + " did not answer"
	case errors.Is(err, context.DeadlineExceeded):
		return "error: request timed out (--request-timeout): " + err.Error()
	case request != nil && errors.Is(err, syscall.ECONNREFUSED):
		return "The connection to the server " + serverOf(request) + " was refused - did you specify the right host or port?"
	case request != nil:
		return "Unable to connect to the server: " + request.Err.Error()
	case !errors.As(err, &status):
		return "error: " + err.Error()
	case status.Status().Reason == metav1.StatusReasonUnauthorized:
		return "error: You must be logged in to the server (" + status.Status().Message + ")"
	case unknownResource(status.Status()):
		return "error: " + err.Error() + ": are the CRDs of the broker installed there?"
	case status.Status().Reason == metav1.StatusReasonUnknown:
		return "Error from server: " + err.Error()
	default:
		return fmt.Sprintf("Error from server (%s): %s", status.Status().Reason, err)
	}
}

// requestOf returns the request without an answer that an error is about; nil for another error. net/url has the same type
// for addresses that it cannot parse.
func requestOf(err error) *url.Error {
	var failed *url.Error
	if !errors.As(err, &failed) || failed.Op == "parse" {
		return nil
	}
	return failed
}

// serverOf returns the host and port of a request.
func serverOf(request *url.Error) string {
	if server, err := url.Parse(request.URL); err == nil {
		return server.Host
	}
	return request.URL
}

// unknownResource reports whether the API server does not serve the resource. Its 404 is then not a Status of the API,
// and client-go adds a cause to the Status that it makes.
func unknownResource(status metav1.Status) bool {
	if status.Reason != metav1.StatusReasonNotFound || status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}
