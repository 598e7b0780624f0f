package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// What a cell says where there is nothing, or nothing is known: never empty, so that columns can be counted.
const (
	none    = "<none>"
	unknown = "<unknown>"
)

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

func orUnknown(text string) string {
	if text == "" {
		return unknown
	}
	return text
}

func age(now, since time.Time) string {
	if since.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(since))
}

func errNoObject(o runtime.Object) error { return fmt.Errorf("%T is no object of the API", o) }

// Words says what went wrong as kubectl would, one line for each failure.
func Words(err error) []string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var lines []string
		for _, err := range joined.Unwrap() {
			lines = append(lines, Words(err)...)
		}
		return lines
	}
	return []string{strings.Join(strings.Fields(word(err)), " ")}
}

func word(err error) string {
	var status kerrors.APIStatus
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "error: no answer in time (--request-timeout): " + err.Error()
	case errors.Is(err, context.Canceled):
		return "error: interrupted"
	case !errors.As(err, &status):
		return "error: " + err.Error()
	case unknownResource(status.Status()):
		return "error: the server doesn't know the resource asked for: are the CRDs of the broker installed there? " + err.Error()
	case status.Status().Reason == metav1.StatusReasonUnknown:
		return "Error from server: " + err.Error()
	default:
		return fmt.Sprintf("Error from server (%s): %s", status.Status().Reason, err)
	}
}

// unknownResource tells that the path was not found, rather than an object: the answer is no Status of the API then, and
// client-go has made one.
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
