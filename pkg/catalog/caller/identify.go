package caller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
)

var (
	// ErrInvalidToken means that the API server does not know the bearer token.
	ErrInvalidToken = errors.New("the bearer token is not valid: it is unknown to the API server, or has expired")
	// ErrUnavailable means that the API server could not review the caller.
	ErrUnavailable = errors.New("the API server cannot review the caller")
)

// LimitError means that a caller has exceeded its allowance.
type LimitError struct{ RetryAfter time.Duration }

func (e *LimitError) Error() string {
	return fmt.Sprintf("too many requests, try again in %s", e.RetryAfter.Round(time.Millisecond))
}

const (
	// rejectedTTL is how long an invalid token is not reviewed again.
	rejectedTTL = time.Minute
	// graceTTL is how much longer a token is accepted while its user has no allowance for another review. So a revoked
	// token is accepted for at most 4 minutes.
	graceTTL = 2 * time.Minute
)

// Identifier identifies callers, and counts their requests.
type Identifier struct {
	tokens       *auth.Tokens
	certificates authenticator.Request
	allowances   *Allowances
}

// NewIdentifier returns an Identifier. certificates authenticates client certificates; nil ignores them.
func NewIdentifier(reviewer authenticator.Token, certificates authenticator.Request, allowances *Allowances,
	clk clock.PassiveClock,
) *Identifier {
	return &Identifier{tokens: auth.NewTokens(reviewer, rejectedTTL, clk), certificates: certificates, allowances: allowances}
}

// Identify returns the caller of a request, and subtracts the request from the caller's allowance. From then on the
// connection counts as a known caller's. The review of a token has an allowance of its own, which is charged before the
// API server is called: the allowance of the token's user at its last review, or of the host. A bearer token takes
// precedence over a client certificate, which browsers send by themselves. A caller whose certificate is not accepted
// is anonymous.
//
// It returns an ErrInvalidToken, a *LimitError, or an ErrUnavailable, which may be a *auth.MissingPermissionError.
func (i *Identifier) Identify(r *http.Request) (Caller, error) {
	host := Host(r)
	who, err := i.authenticate(r, host)
	if err != nil {
		return Caller{}, err
	}
	key := i.allowances.Key(&who, host)
	if wait := i.allowances.Take(key, 1); wait > 0 {
		return Caller{}, &LimitError{RetryAfter: wait}
	}
	if who.Known() {
		i.allowances.Connections.CountFor(r.Context(), key) // Over the limit it stays a stranger's.
	}
	return who, nil
}

func (i *Identifier) authenticate(r *http.Request, host string) (Caller, error) {
	if token, ok := bearer(r.Header.Get("Authorization")); ok {
		return i.byToken(r.Context(), token, host)
	}
	if i.certificates == nil {
		return Caller{}, nil
	}
	response, ok, err := i.certificates.AuthenticateRequest(r)
	switch {
	case err != nil:
		return Caller{Certificate: err.Error()}, nil
	case !ok:
		return Caller{}, nil
	}
	return Caller{User: response.User, organizations: r.TLS.PeerCertificates[0].Subject.Organization}, nil
}

// byToken returns the caller with a token. Anonymous callers of the same host can invent tokens but cannot guess a
// token that was valid, so that they cannot use up the allowance that reviews it again.
func (i *Identifier) byToken(ctx context.Context, token, host string) (Caller, error) {
	was, rejected := i.tokens.Look(token)
	switch {
	case rejected:
		if wait := i.allowances.Take(hostKey(host), 1); wait > 0 {
			return Caller{}, &LimitError{RetryAfter: wait}
		}
		return Caller{}, ErrInvalidToken
	case i.tokens.IsGood(was, 0):
		return Caller{User: was.Who, ByToken: true}, nil
	}
	account := hostKey(host)
	if was != nil {
		account = i.allowances.userKey(was.Who)
	}
	who, err := i.tokens.Review(ctx, token, func() error { return i.allowances.spendReview(account) })
	var limit *LimitError
	switch {
	case errors.As(err, &limit) && i.tokens.IsGood(was, graceTTL):
		who = was.Who
	case err != nil:
		return Caller{}, unavailable(err)
	case who == nil:
		return Caller{}, ErrInvalidToken
	}
	return Caller{User: who, ByToken: true}, nil
}

// unavailable returns the reason for a missing review: an ErrUnavailable, or the *LimitError of a caller without
// allowance.
func unavailable(err error) error {
	var limit *LimitError
	if errors.As(err, &limit) {
		return limit
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// bearer returns the token of an Authorization header (RFC 6750). Other schemes are ignored.
func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(header), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}
