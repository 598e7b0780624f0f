package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// maxFailure bounds how much is read of a provider's answer that is not a stream (bytes).
const maxFailure = 16 << 10

// failuref returns an error with the status code for the caller. Its text is safe to show, whatever it quotes from a
// provider: a message, the reason phrase of an answer, or the names in a certificate.
func failuref(code int, format string, args ...any) error {
	message := untrusted.Lines(untrusted.Cut(fmt.Sprintf(format, args...), 2*maxMessage))
	status := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message}
	switch code {
	case http.StatusNotFound:
		status.Reason = metav1.StatusReasonNotFound
	case http.StatusBadRequest:
		status.Reason = metav1.StatusReasonBadRequest
	case http.StatusTooManyRequests:
		status.Reason = metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		status.Reason = metav1.StatusReasonInternalError
	}
	return &kerrors.StatusError{ErrStatus: status}
}

// noAnswer returns the error for a provider that did not answer, or whose answer was rejected. An error that already
// has a code keeps it.
func noAnswer(err error) error {
	if known := kerrors.APIStatus(nil); errors.As(err, &known) {
		return err
	}
	if redirect := (*untrusted.RedirectError)(nil); errors.As(err, &redirect) {
		return failuref(http.StatusBadGateway, "%s", redirect)
	}
	return failuref(http.StatusBadGateway, "no answer from the provider's API server: %s", err)
}

// maxMessage bounds the text of a provider's error that a caller is shown (bytes).
const maxMessage = 4 << 10

// errorText returns the text of an answer that is not a Status. Kubelets answer in plain text, which kube-apiserver
// passes on (k8s.io/apimachinery/pkg/util/proxy). HTML pages are not shown: they do not come from an API server.
func errorText(response *http.Response, body []byte) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind != "text/plain" {
		return "the provider's response is not a Kubernetes Status"
	}
	return string(body)
}

// answered returns the error that a provider's API server answered. If it concerns the identity of this cluster, or is
// not an error, it becomes a bad gateway: the caller's request is not at fault.
func answered(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFailure))
	if err != nil {
		return failuref(http.StatusBadGateway, "the provider's API server answered %s: %s", response.Status, err)
	}
	status := metav1.Status{}
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" || status.Message == "" {
		status.Message = errorText(response, body)
	}
	status.Message = untrusted.Cut(status.Message, maxMessage)
	switch code := response.StatusCode; {
	case code < http.StatusBadRequest, code == http.StatusUnauthorized, code == http.StatusForbidden:
		return failuref(http.StatusBadGateway, "the provider's API server answered %s: %s", response.Status, status.Message)
	default:
		return failuref(code, "%s", status.Message)
	}
}

// fail answers with an error: 500 unless the error has its own code. A caller that asked for a stream gets a Status,
// because client-go decodes a text with a colon as an empty Status.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if known := kerrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	if status.Code >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.Log.Info("Request failed", "path", r.URL.Path, "reason", status.Message)
	}
	if !httpstream.IsUpgradeRequest(r) {
		http.Error(w, status.Message, int(status.Code))
		return
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
