// Package problem has the error answers of the catalog: problem documents (RFC 9457).
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-logr/logr"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

// Problem is a problem document, with the headers that belong to it. It implements huma.StatusError and
// huma.HeadersError.
type Problem struct {
	huma.ErrorModel
	header http.Header
}

// New returns a Problem.
func New(status int, detail string, faults ...*huma.ErrorDetail) *Problem {
	return &Problem{
		ErrorModel: huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail, Errors: faults},
		header:     http.Header{},
	}
}

// Fault is a fault of a part of a request, such as "query.limit" or "body.policy.weights[0]".
func Fault(location, message string) *huma.ErrorDetail {
	return &huma.ErrorDetail{Location: location, Message: message}
}

// InvalidQuery is the problem of an invalid parameter of the URL.
func InvalidQuery(faults ...*huma.ErrorDetail) *Problem {
	return New(http.StatusUnprocessableEntity, "invalid query parameter", faults...)
}

// MethodNotAllowed is the problem of a method that a path does not have.
func MethodNotAllowed(allow string) *Problem {
	p := New(http.StatusMethodNotAllowed, "method not allowed: use one of "+allow)
	p.header.Set("Allow", allow)
	return p
}

// RetryAfter sets the header of that name, to at least one second.
func (p *Problem) RetryAfter(wait time.Duration) *Problem {
	p.header.Set("Retry-After", strconv.Itoa(int(math.Max(1, math.Ceil(wait.Seconds())))))
	return p
}

// Authenticate sets the header WWW-Authenticate.
func (p *Problem) Authenticate(challenge string) *Problem {
	p.header.Set("WWW-Authenticate", challenge)
	return p
}

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Del("ETag")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(&p.ErrorModel) // A client that has disconnected needs no answer.
}

// Of returns the problem for an error. Errors that the caller cannot correct are logged, and not described in detail.
func Of(log logr.Logger, err error) *Problem {
	var known *Problem
	var limit *caller.LimitError
	var policy *explain.PolicyError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &limit):
		return New(http.StatusTooManyRequests, limit.Error()).RetryAfter(limit.RetryAfter)
	case errors.As(err, &policy):
		return ofPolicy(policy)
	case errors.Is(err, view.ErrContinue):
		return InvalidQuery(Fault("query.continue", "invalid continue token: restart at the first page"))
	case errors.Is(err, explain.ErrBusy):
		return New(http.StatusServiceUnavailable, explain.ErrBusy.Error()).RetryAfter(time.Second)
	}
	if p := ofCaller(log, err); p != nil {
		return p
	}
	if p := ofAPIServer(log, err); p != nil {
		return p
	}
	log.Error(err, "Failed to answer a request")
	return New(http.StatusInternalServerError, "internal error: see the catalog's log")
}

// ofCaller returns nil if the error is not from package caller.
func ofCaller(log logr.Logger, err error) *Problem {
	var forbidden *caller.ForbiddenError
	var missing *auth.MissingPermissionError
	switch {
	case errors.Is(err, caller.ErrInvalidToken):
		return New(http.StatusUnauthorized, caller.ErrInvalidToken.Error()).
			Authenticate(`Bearer error="invalid_token"`)
	case errors.Is(err, caller.ErrStranger):
		return New(http.StatusUnauthorized, err.Error()).Authenticate("Bearer")
	case errors.As(err, &forbidden):
		return New(http.StatusForbidden, forbidden.Error())
	case errors.As(err, &missing):
		log.Error(err, "Failed to review a caller")
		return New(http.StatusInternalServerError, missing.Error())
	case errors.Is(err, caller.ErrUnavailable):
		unlessCanceled(log, err, "Failed to review a caller")
		return New(http.StatusServiceUnavailable, caller.ErrUnavailable.Error()+", try again later").
			RetryAfter(time.Second)
	}
	return nil
}

// ofAPIServer returns nil if the error is not from an API server or the cache.
func ofAPIServer(log logr.Logger, err error) *Problem {
	switch {
	case kerrors.IsNotFound(err), errors.Is(err, explain.ErrOtherNode):
		return New(http.StatusNotFound, "not found, or you may not read it")
	case errors.Is(err, orchestrator.ErrNameTaken):
		return New(http.StatusConflict, err.Error())
	case kerrors.IsConflict(err), kerrors.IsAlreadyExists(err):
		return New(http.StatusConflict, "the object was modified concurrently, try again").RetryAfter(time.Second)
	case kerrors.IsForbidden(err):
		log.Error(err, "The catalog's service account lacks a permission")
		return New(http.StatusInternalServerError,
			"the catalog's service account lacks a permission: see docs/catalog.md")
	case kerrors.IsServerTimeout(err), kerrors.IsTimeout(err), kerrors.IsTooManyRequests(err),
		kerrors.IsServiceUnavailable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		unlessCanceled(log, err, "The API server is unavailable")
		return New(http.StatusServiceUnavailable, "the API server is unavailable, try again later").
			RetryAfter(time.Second)
	}
	return nil
}

// unlessCanceled logs an error, unless the client has closed the connection or the catalog stops.
func unlessCanceled(log logr.Logger, err error, message string) {
	if !errors.Is(err, context.Canceled) {
		log.Error(err, message)
	}
}

func ofPolicy(err *explain.PolicyError) *Problem {
	p := New(http.StatusUnprocessableEntity, "the policy is not valid")
	for _, f := range err.Faults {
		p.Errors = append(p.Errors, Fault("body."+f.Field, f.ErrorBody()))
	}
	return p
}
