package catalog

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

	"github.com/capacitorset/liqo-broker-vk/pkg/access"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/selection"
)

// problem is an answer that is an error: a problem document (RFC 9457), with the headers that belong to it.
type problem struct {
	huma.ErrorModel
	header http.Header
}

func newProblem(status int, detail string, faults ...*huma.ErrorDetail) *problem {
	return &problem{
		ErrorModel: huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail, Errors: faults},
		header:     http.Header{},
	}
}

// fault says what is wrong with a part of a request: "query.limit", "body.policy.weights[0]".
func fault(location, message string) *huma.ErrorDetail {
	return &huma.ErrorDetail{Location: location, Message: message}
}

// invalidQuery says that parameters of a URL cannot be understood.
func invalidQuery(faults ...*huma.ErrorDetail) *problem {
	return newProblem(http.StatusUnprocessableEntity, "a parameter of the URL is not valid", faults...)
}

func (p *problem) retryAfter(wait time.Duration) *problem {
	p.header.Set("Retry-After", strconv.Itoa(int(math.Max(1, math.Ceil(wait.Seconds())))))
	return p
}

func (p *problem) authenticate(challenge string) *problem {
	p.header.Set("WWW-Authenticate", challenge)
	return p
}

// GetHeaders implements huma.HeadersError.
func (p *problem) GetHeaders() http.Header { return p.header }

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Del("ETag")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(&p.ErrorModel) // Whoever has gone needs no answer.
}

// problemOf words an error for the caller. What the caller cannot help is logged, and not told in detail.
func problemOf(log logr.Logger, err error) *problem {
	var known *problem
	var limit *caller.LimitError
	var policy *explain.PolicyError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &limit):
		return newProblem(http.StatusTooManyRequests, limit.Error()).retryAfter(limit.RetryAfter)
	case errors.As(err, &policy):
		return policyProblem(policy)
	case errors.Is(err, federation.ErrContinue):
		return invalidQuery(fault("query.continue", "it is not from this list: begin with the first page"))
	case errors.Is(err, explain.ErrBusy):
		return newProblem(http.StatusServiceUnavailable, explain.ErrBusy.Error()).retryAfter(time.Second)
	}
	if p := accessProblem(log, err); p != nil {
		return p
	}
	if p := apiServerProblem(log, err); p != nil {
		return p
	}
	log.Error(err, "Cannot answer a request")
	return newProblem(http.StatusInternalServerError, "the catalog failed; its log says why")
}

// accessProblem words what package caller says; nil if err is none of that.
func accessProblem(log logr.Logger, err error) *problem {
	var forbidden *caller.ForbiddenError
	var missing *access.MissingPermissionError
	switch {
	case errors.Is(err, caller.ErrInvalidToken):
		return newProblem(http.StatusUnauthorized, caller.ErrInvalidToken.Error()).
			authenticate(`Bearer error="invalid_token"`)
	case errors.Is(err, caller.ErrStranger):
		return newProblem(http.StatusUnauthorized, err.Error()).authenticate("Bearer")
	case errors.As(err, &forbidden):
		return newProblem(http.StatusForbidden, forbidden.Error())
	case errors.As(err, &missing):
		log.Error(err, "Callers cannot be reviewed")
		return newProblem(http.StatusInternalServerError, missing.Error())
	case errors.Is(err, caller.ErrUnavailable):
		log.Error(err, "Callers cannot be reviewed")
		return newProblem(http.StatusServiceUnavailable, caller.ErrUnavailable.Error()+", try again later").
			retryAfter(time.Second)
	}
	return nil
}

// apiServerProblem words what the API server, or the cache of it, says; nil if err is none of that.
func apiServerProblem(log logr.Logger, err error) *problem {
	switch {
	case kerrors.IsNotFound(err), errors.Is(err, explain.ErrElsewhere):
		return newProblem(http.StatusNotFound, "it does not exist, or is not yours to see")
	case errors.Is(err, selection.ErrNameTaken):
		return newProblem(http.StatusConflict, err.Error())
	case kerrors.IsConflict(err), kerrors.IsAlreadyExists(err):
		return newProblem(http.StatusConflict, "somebody else wrote at the same moment, try again").retryAfter(time.Second)
	case kerrors.IsForbidden(err):
		log.Error(err, "The catalog may not write")
		return newProblem(http.StatusInternalServerError,
			"the catalog's own service account may not do that: see docs/catalog.md")
	case kerrors.IsServerTimeout(err), kerrors.IsTimeout(err), kerrors.IsTooManyRequests(err),
		kerrors.IsServiceUnavailable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		log.Error(err, "The API server does not answer")
		return newProblem(http.StatusServiceUnavailable, "the API server does not answer, try again later").
			retryAfter(time.Second)
	}
	return nil
}

func policyProblem(err *explain.PolicyError) *problem {
	p := newProblem(http.StatusUnprocessableEntity, "the policy is not valid")
	for _, f := range err.Faults {
		p.Errors = append(p.Errors, fault("body."+f.Field, f.ErrorBody()))
	}
	return p
}
